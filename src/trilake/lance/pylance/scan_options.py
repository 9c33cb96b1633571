"""Names of scan and search options, including those without effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError

#: Options of a scan, as in :meth:`LanceDataset.scanner`.
SCAN_OPTIONS = (
    *("columns", "filter", "limit", "offset", "nearest", "batch_size", "batch_size_bytes", "batch_readahead"),
    *("fragment_readahead", "scan_in_order", "fragments", "prefilter", "with_row_id", "with_row_address", "use_stats"),
    *("use_scalar_index", "include_deleted_rows", "strict_batch_size", "order_by", "disable_scoring_autoprojection"),
    *("blob_handling", "fast_search"),
)
#: Hints of pylance without effect.
LANCE_HINTS = frozenset(("io_buffer_size", "late_materialization"))
HINTS = LANCE_HINTS | {"use_threads", "memory_pool", "fragment_scan_options", "cache_metadata"}
#: All accepted options of a scan.
OF_SCANS = HINTS.union(SCAN_OPTIONS)
#: Options of ``take``: hints of pyarrow scans, and ``sorted`` of old pylance releases, without effect.
OF_ROWS = HINTS | {
    *("with_row_id", "with_row_address", "sorted"),
    *("batch_size", "batch_readahead", "fragment_readahead", "scan_in_order"),
}
#: Unsupported options of newer pylance releases, each with an explanation.
_BEYOND = {
    "full_text_query": "full text search is not supported; filters such as contains(text, 'word') scan all rows",
    "index_segments": "a search uses all segments of an index",
}
#: Options of a nearest neighbor search, see :class:`~trilake.lance.scan.search.Nearest`.
_SEARCH = (
    *("column", "q", "k", "metric", "nprobes", "refine_factor", "use_index", "distance_range"),
    *("minimum_nprobes", "maximum_nprobes"),
)
#: Accepted hints: options of unsupported index kinds, and the number of threads.
_SEARCH_HINTS = ("ef", "query_parallelism", "approx_mode", "search_effort")


def check_names(options: Mapping[str, Any], allowed: frozenset[str] = OF_SCANS) -> dict[str, Any]:
    """Check option names, and return the options without unsupported ones that are not set.

    Raises ``WrongTypeError`` for an unknown option.
    """
    explicit = {n: v for n, v in options.items() if not (n in _BEYOND and (v is None or v is False))}
    unknown = explicit.keys() - allowed
    if unknown:
        name = min(unknown)
        raise WrongTypeError(
            f"unknown scan option {name!r}", help=_BEYOND.get(name, f"options are {', '.join(SCAN_OPTIONS)}")
        )
    return explicit


def checked_search(nearest: Any) -> dict[str, Any]:
    """Check the options of a search, and drop hints.  Raises ``WrongTypeError``."""
    if not isinstance(nearest, Mapping):
        raise WrongTypeError(
            f"nearest must be a mapping, got {nearest!r}", help='pass {"column": ..., "q": ..., "k": ...}'
        )
    for name in nearest:
        if name not in _SEARCH and name not in _SEARCH_HINTS:
            raise WrongTypeError(f"unknown search option {name!r}", help=f"options are {', '.join(_SEARCH)}")
    for name in _SEARCH[:2]:
        if name not in nearest:
            raise WrongTypeError(f"nearest must have {name!r}", help='pass {"column": ..., "q": ..., "k": ...}')
    if nearest.get("query_parallelism") is not None:
        count("query_parallelism", nearest["query_parallelism"], least=-1, other_type=WrongTypeError)
    if nearest.get("approx_mode", "normal") not in ("fast", "normal", "accurate"):
        raise InvalidArgumentError(f"approx_mode must be fast, normal or accurate, got {nearest['approx_mode']!r}")
    return {name: value for name, value in nearest.items() if name in _SEARCH}


def scan_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove and return the scan options; the others are for ``to_pandas``."""
    return {name: options.pop(name) for name in (*SCAN_OPTIONS, *LANCE_HINTS) if name in options}
