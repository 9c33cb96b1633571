"""The options of scans and searches by their names: which there are, and which change nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError

#: The options of a scan, by the names that they have in :meth:`LanceDataset.scanner`.
SCAN_OPTIONS = (
    *("columns", "filter", "limit", "offset", "nearest", "batch_size", "batch_size_bytes", "batch_readahead"),
    *("fragment_readahead", "scan_in_order", "fragments", "prefilter", "with_row_id", "with_row_address", "use_stats"),
    *("use_scalar_index", "include_deleted_rows", "strict_batch_size", "order_by", "disable_scoring_autoprojection"),
    *("blob_handling", "fast_search"),
)
#: Hints of pylance, which change nothing here.
LANCE_HINTS = frozenset(("io_buffer_size", "late_materialization"))
#: These, and options of Arrow's scanners.
HINTS = LANCE_HINTS | {"use_threads", "memory_pool", "fragment_scan_options", "cache_metadata"}
#: All that a scan may be told.
OF_SCANS = HINTS.union(SCAN_OPTIONS)
#: Options of rows at some places, which no filter chooses: hints of Arrow's scans, and ``sorted``, of programs for old
#: pylance, which changes nothing either.
OF_ROWS = HINTS | {
    *("with_row_id", "with_row_address", "sorted"),
    *("batch_size", "batch_readahead", "fragment_readahead", "scan_in_order"),
}
#: Options of later releases of pylance that the format cannot serve, or that have another name here.
_BEYOND = {
    "full_text_query": "the format has no index of words; filters such as contains(text, 'word') look at all rows",
    "index_segments": "an index is searched in all its segments",
}
#: What a search for the nearest rows may say, see :class:`~trilake.lance.scan.search.Nearest`.
_SEARCH = (
    *("column", "q", "k", "metric", "nprobes", "refine_factor", "use_index", "distance_range"),
    *("minimum_nprobes", "maximum_nprobes"),
)
#: What it may say to indices of kinds that the format has not, or of how many threads it takes.
_SEARCH_HINTS = ("ef", "query_parallelism", "approx_mode", "search_effort")


def check_names(options: Mapping[str, Any], known: frozenset[str] = OF_SCANS) -> dict[str, Any]:
    """The options without those of later releases that say what is done anyway.

    Raises ``WrongTypeError`` for one that is not known.
    """
    said = {n: v for n, v in options.items() if not (n in _BEYOND and (v is None or v is False))}
    unknown = said.keys() - known
    if unknown:
        name = min(unknown)
        raise WrongTypeError(
            f"a scan has no option {name!r}", help=_BEYOND.get(name, f"options are {', '.join(SCAN_OPTIONS)}")
        )
    return said


def checked_search(nearest: Any) -> dict[str, Any]:
    """The options of a search, checked by name, without hints.  Raises ``WrongTypeError``."""
    if not isinstance(nearest, Mapping):
        raise WrongTypeError(f"nearest is {nearest!r}", help='pass {"column": ..., "q": ..., "k": ...}')
    for name in nearest:
        if name not in _SEARCH and name not in _SEARCH_HINTS:
            raise WrongTypeError(f"a search has no option {name!r}", help=f"options are {', '.join(_SEARCH)}")
    for name in _SEARCH[:2]:
        if name not in nearest:
            raise WrongTypeError(
                f"the search does not say its {name!r}", help='pass {"column": ..., "q": ..., "k": ...}'
            )
    if nearest.get("query_parallelism") is not None:
        count("query_parallelism", nearest["query_parallelism"], least=-1, other_type=WrongTypeError)
    if nearest.get("approx_mode", "normal") not in ("fast", "normal", "accurate"):
        raise InvalidArgumentError(f"approx_mode must be fast, normal or accurate, got {nearest['approx_mode']!r}")
    return {name: value for name, value in nearest.items() if name in _SEARCH}


def scan_options(options: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a scan, which what makes frames of tables does not have, taken out of ``options``."""
    return {name: options.pop(name) for name in (*SCAN_OPTIONS, *LANCE_HINTS) if name in options}
