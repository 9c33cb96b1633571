"""Nearest-neighbor search: with a vector index if there is one, otherwise by comparing all vectors.

Fragments that the index does not cover are always searched by comparing vectors, so that appended rows are found too.
Deleted rows are excluded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import FrozenBitMap

from trilake.common.arguments import count, flag
from trilake.errors import CorruptFileError, InvalidArgumentError
from trilake.expr import Filter
from trilake.lance.file.errors import UnsupportedIndexError, WrongTypeError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.index.ivf_legacy import REMAKE
from trilake.lance.index.ivf_pq import distances
from trilake.lance.index.vector_index import Allowed, VectorIndex, nearest_first
from trilake.lance.scan import scan
from trilake.lance.scan.fragment_reader import ROW_ADDRESS, ROW_ID, FragmentReader, Ids, by_fragment, one_array, split
from trilake.lance.scan.id_conditions import id_columns
from trilake.lance.scan.joined_reader import joined, together
from trilake.lance.scan.scan import ScanPlan
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.scan.vectors import list_distances, valid_rows, vector_leaf, vector_type, vectors_in, vectors_of

DISTANCE = "_distance"
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32())
#: First column of a search for several vectors: the index of the query vector that a row is near.
QUERY_INDEX_FIELD = pa.field("query_index", pa.int32(), nullable=False)
_METRICS = {"l2": "l2", "euclidean": "l2", "cosine": "cosine", "dot": "dot"}

Floats = npt.NDArray[np.float32]
DistanceRange = tuple[float | None, float | None]
#: Default number of partitions to search first, as in pylance 14.
USUAL_NPROBES = 6


@dataclass(frozen=True, eq=False)
class Nearest:
    """A vector search.

    Parameters
    ----------
    q: the query vector, float32.
    metric: ``l2`` (squared), ``cosine`` or ``dot``, for bytes ``hamming``; ``None`` for that of the index, or ``l2``.
    nprobes, maximum_nprobes: bounds of the number of index partitions to search until there are ``k`` rows.
    refine_factor: rank this many times ``k`` rows again by their full vectors.
    distance_range: lower bound (inclusive) and upper bound (exclusive) of distances; ``None`` for no bound.
    batch: all query vectors, if there are several, with ``k`` rows for each; ``q`` is the first one.
    together: all query vectors of a search in lists of vectors, see :func:`~trilake.lance.scan.vectors.list_distances`.
    """

    column: str
    q: Floats
    k: int = 10
    metric: str | None = None
    nprobes: int = USUAL_NPROBES
    maximum_nprobes: int | None = None
    refine_factor: int | None = None
    use_index: bool = True
    distance_range: DistanceRange = (None, None)
    batch: Floats | None = None
    together: Floats | None = None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        column: str,
        q: Any,
        k: int | None = None,
        metric: str | None = None,
        *,
        nprobes: int | None = None,
        refine_factor: int | None = None,
        use_index: bool = True,
        distance_range: Any = None,
        minimum_nprobes: int | None = None,
        maximum_nprobes: int | None = None,
    ) -> Nearest:
        """Check a search against the columns of a dataset; ``nprobes`` sets both of its bounds.

        Raises ``InvalidArgumentError``.
        """
        kind = vector_type(snapshot, column, bytes_too=True, lists_too=True)
        in_lists = pa.types.is_list(kind)
        kind = kind.value_type if in_lists else kind
        vectors, single = vectors_in(q)
        if vectors.shape[1] != kind.list_size:
            raise InvalidArgumentError(
                f"Query vector size {vectors.shape[1]} does not match index column size {kind.list_size}", column=column
            )
        counts = {"k": k, "nprobes": nprobes, "refine_factor": refine_factor}
        counts |= {"minimum_nprobes": minimum_nprobes, "maximum_nprobes": maximum_nprobes}
        for name, value in counts.items():
            if value is not None:
                count(name, value, least=1, other_type=WrongTypeError)
        flag("use_index", use_index)
        if minimum_nprobes is not None and maximum_nprobes is not None and minimum_nprobes > maximum_nprobes:
            raise InvalidArgumentError(
                f"minimum_nprobes must not exceed maximum_nprobes, got {minimum_nprobes} and {maximum_nprobes}"
            )
        if nprobes is not None and not (minimum_nprobes or 1) <= nprobes <= (maximum_nprobes or nprobes):
            raise InvalidArgumentError(
                f"nprobes must be between minimum_nprobes and maximum_nprobes, got {nprobes}", help="leave nprobes out"
            )
        most = nprobes or maximum_nprobes
        first = nprobes or min(max(minimum_nprobes or 1, USUAL_NPROBES), most or sys.maxsize)
        return cls(
            column,
            vectors[0],
            k or 10,
            _metric_of(metric, kind.value_type, vectors, column),
            first,
            most,
            refine_factor,
            use_index,
            _distance_range(distance_range),
            None if single or in_lists else vectors,
            vectors if in_lists else None,
        )

    def distances(self, column: pa.Array, metric: str) -> Floats:
        """The distances of the vectors or lists of a column; NaN for those that are near nothing."""
        if self.together is not None:
            return list_distances(column, self.together, metric)
        return distances(vectors_of(column, len(self.q)), self.q, metric)

    def in_range(self, distances: Floats) -> npt.NDArray[np.bool_] | None:
        """Which distances are in the range, and not NaN; ``None`` if all are."""
        low, high = self.distance_range
        within: npt.NDArray[np.bool_] = ~np.isnan(distances)
        if low is None and high is None:
            return None if within.all() else within
        if low is not None:
            within &= distances >= low
        if high is not None:
            within &= distances < high
        return within


def _metric_of(metric: str | None, kind: pa.DataType, vectors: Floats, column: str) -> str | None:
    """The name of a metric; for vectors of bytes it is ``hamming``.  Raises ``InvalidArgumentError``."""
    name = "hamming" if str(metric).lower() == "hamming" else metric_name(metric)
    if (kind == pa.uint8()) != (name == "hamming") and (name is not None):
        raise InvalidArgumentError(f"metric {metric!r} does not support vectors of {kind}", column=column)
    if kind != pa.uint8():
        return name
    if ((vectors < 0) | (vectors > 255) | (vectors != np.floor(vectors))).any():
        raise InvalidArgumentError("the query vector must have integers from 0 to 255")
    return "hamming"


def _distance_range(bounds: Any) -> DistanceRange:
    if bounds is None:
        return (None, None)
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise InvalidArgumentError(
            f"distance_range must be a pair of distances, got {bounds!r}",
            help="pass the lower bound and the exclusive upper bound, such as (0.0, 1.5)",
        )
    low, high = (None if bound is None else _number(bound) for bound in bounds)
    return low, high


def _number(bound: Any) -> float:
    if isinstance(bound, bool | str) or not hasattr(bound, "__float__") or np.isnan(float(bound)):
        raise InvalidArgumentError(f"distance_range must contain numbers, got {bound!r}", help="pass numbers, or None")
    with np.errstate(over="ignore"):
        return float(np.float32(bound))  # distances are float32


def metric_name(metric: str | None) -> str | None:
    """The canonical name of a metric.  Raises ``InvalidArgumentError``."""
    if metric is None:
        return None
    name = _METRICS.get(str(metric).lower())
    if name is None and str(metric).lower() == "hamming":
        raise UnsupportedIndexError(
            "an index of metric 'hamming' cannot be built", help="search without an index; it compares all rows"
        )
    if name is None:
        raise InvalidArgumentError(f"metric {metric!r} is unknown", help="metrics are L2, cosine, dot and hamming")
    return name


def schema(plan: ScanPlan, nearest: Nearest) -> pa.Schema:
    """The schema of a search result: the plan's columns, and the distance."""
    schema = plan.columns.shown_schema.append(DISTANCE_FIELD)
    if nearest.batch is not None:
        schema = schema.insert(0, QUERY_INDEX_FIELD)
    return scan.with_row_metadata_schema(schema, plan.row_metadata)


def search(
    snapshot: Snapshot, plan: ScanPlan, nearest: Nearest, readers: Sequence[FragmentReader], *, prefilter: bool
) -> pa.Table:
    """Find the rows of a scan that are nearest to a vector, nearest first; several vectors have consecutive results.

    With ``prefilter``, the plan's filter applies before the search, otherwise to its result.
    """
    if nearest.batch is None:
        return _nearest_rows(snapshot, plan, nearest, readers, prefilter=prefilter)
    each = replace(plan, limit=None, offset=0)
    tables = []
    for i, q in enumerate(nearest.batch):
        rows = _nearest_rows(snapshot, each, replace(nearest, q=q, batch=None), readers, prefilter=prefilter)
        tables.append(rows.add_column(0, QUERY_INDEX_FIELD, pa.array(np.full(len(rows), i, np.int32))))
    return pa.concat_tables(tables).slice(plan.offset, plan.limit)


def _nearest_rows(
    snapshot: Snapshot, plan: ScanPlan, nearest: Nearest, readers: Sequence[FragmentReader], *, prefilter: bool
) -> pa.Table:
    condition = plan.filter if prefilter else None
    parts = vector_index(snapshot, nearest)
    metric = nearest.metric or (parts[0].opened.metric if parts else "l2")
    covered = [[r for r in readers if r.fragment.id in part.fragments] for part in parts]
    rest = [r for r in readers if not any(r in of_part for of_part in covered)]
    neighbours = _flat(snapshot, rest, nearest, metric, condition, plan.use_index)
    # Distances of codes are not comparable with those of vectors, or of lists of vectors.
    exact = bool(rest or nearest.refine_factor or nearest.together is not None)
    for part, of_part in zip(parts, covered, strict=True):
        if of_part:
            neighbours.append(_by_index(snapshot, plan, nearest, part, of_part, condition, metric if exact else None))
    ids = np.concatenate([np.array([], np.uint64), *(f[0] for f in neighbours)])
    distance = np.concatenate([np.array([], np.float32), *(f[1] for f in neighbours)])
    within = nearest.in_range(distance)
    if within is not None:
        ids, distance = ids[within], distance[within]
    order = nearest_first(distance, ids, nearest.k)
    return _rows(snapshot, plan, nearest, ids[order], distance[order], None if prefilter else plan.filter)


def _by_index(
    snapshot: Snapshot,
    plan: ScanPlan,
    nearest: Nearest,
    index: SearchIndex,
    covered: Sequence[FragmentReader],
    condition: Filter | None,
    exact: str | None,
) -> tuple[Ids, Floats]:
    """Find the nearest rows of some fragments by an index; with the metric ``exact``, compare their vectors again."""
    # Rows below the distance range must not displace others.
    every = nearest.distance_range[0] is not None
    rows = sum(r.physical_rows for r in covered)
    many = rows if every else nearest.k * (nearest.refine_factor or 1)
    if nearest.together is not None:  # a row has several vectors
        many *= -(-index.opened.num_rows // max(rows, 1))
    allowed = _allowed(snapshot, covered, condition, index, plan.use_index)
    ids, distance = index.search(nearest, many, allowed)
    if allowed is None and not in_fragments(snapshot, index.fragments, ids).all():
        # The index has rows that it no longer covers, because their vectors were changed in place or moved.
        of_covered = partial(in_fragments, snapshot, index.fragments)
        ids, distance = index.search(nearest, many, of_covered)
    snapshot.check_indexed(ids)
    if len(np.unique(ids)) < len(ids):
        raise CorruptFileError(
            f"index {index.uuid} returns a row twice", help=REMAKE, file=snapshot.store.uri, version=snapshot.version
        )
    if exact is None or not len(ids):
        return ids, distance
    column = snapshot.take_rows(ids, snapshot.view.schema.project([nearest.column])).column(0)
    return ids, nearest.distances(vector_leaf(one_array(column)), exact)


@dataclass(frozen=True)
class SearchIndex:
    """A segment of an index in a search: its id, its file, and the ids of the fragments that it covers."""

    uuid: str
    opened: VectorIndex
    fragments: FrozenBitMap

    def search(self, nearest: Nearest, many: int, allowed: Allowed | None) -> tuple[Ids, Floats]:
        """Find the ``many`` nearest rows, in as many partitions as the search allows; for lists, only their ids."""
        if nearest.together is not None:
            each = [self.search(replace(nearest, q=q, together=None), many, allowed)[0] for q in nearest.together]
            ids = np.unique(np.concatenate(each))
            return ids, np.full(len(ids), np.nan, np.float32)
        most = len(self.opened.model.centroids) if nearest.maximum_nprobes is None else nearest.maximum_nprobes
        return self.opened.search(
            nearest.q,
            many,
            nprobes=nearest.nprobes,
            maximum_nprobes=max(most, nearest.nprobes),
            enough=nearest.k,
            allowed=allowed,
        )


def vector_index(snapshot: Snapshot, nearest: Nearest) -> list[SearchIndex]:
    """The index segments that a search uses: of its column and metric, and of a supported kind.

    Vectors of fragments without such a segment, or whose segment cannot be opened, are compared one by one.
    """
    if not nearest.use_index:
        return []
    field = snapshot.view.schema.field(nearest.column)
    parts: list[SearchIndex] = []
    name = metric = None
    for entry in snapshot.manifest.indices:
        if entry.fields != (field.id,) or entry.fragment_bitmap is None or name not in (None, entry.name):
            continue
        opened = snapshot.indices.vector(entry)
        if opened is None:
            continue  # of another kind, or of a newer writer
        if opened.dimension == len(nearest.q) and (nearest.metric or metric or opened.metric) == opened.metric:
            name, metric = entry.name, opened.metric
            before = FrozenBitMap.union(FrozenBitMap(), *(part.fragments for part in parts))
            parts.append(SearchIndex(str(entry.uuid), opened, entry.fragment_bitmap - before))
    return parts


def indexed_readers(
    snapshot: Snapshot, plan: ScanPlan, nearest: Nearest | None, readers: Sequence[FragmentReader] | None
) -> tuple[FragmentReader, ...]:
    """Return the readers, by default of all fragments, that an index covers.

    Without an index, a search has none of them, and a scan has all.
    """
    readers = tuple(snapshot.readers if readers is None else readers)
    if nearest is not None:
        covered = FrozenBitMap.union(FrozenBitMap(), *(part.fragments for part in vector_index(snapshot, nearest)))
    else:
        query = snapshot.index_query(plan.filter) if plan.use_index else None
        if query is None:
            return readers
        covered = query.fragments
    return tuple(reader for reader in readers if reader.fragment.id in covered)


def in_fragments(snapshot: Snapshot, fragments: FrozenBitMap, ids: Ids) -> npt.NDArray[np.bool_]:
    """Whether each row id is that of a row in these fragments."""
    of: npt.NDArray[np.bool_] = np.isin(split(snapshot.addresses_of(ids))[0], np.array(fragments, np.int64))
    return of


def _allowed(
    snapshot: Snapshot, readers: Sequence[FragmentReader], condition: Filter | None, index: SearchIndex, use_index: bool
) -> Allowed | None:
    """Build a test of row ids for live, matching rows of these fragments; ``None`` if all rows pass it."""
    if condition is None and all(r.fragment.deletion_file is None for r in readers):
        have = {r.fragment.id for r in readers}
        if all(i in have for i in index.fragments):
            return None
    by_id = {r.fragment.id: r for r in readers}
    matching = _matching(snapshot, readers, condition, use_index)

    def allowed(ids: Ids) -> npt.NDArray[np.bool_]:
        snapshot.check_indexed(ids)
        addresses = snapshot.addresses_of(ids)
        if matching is not None:
            return _among(addresses, matching)
        ok = np.zeros(len(ids), bool)
        for id, at, offsets in by_fragment(addresses):
            reader = by_id.get(id)
            if reader is not None:
                ok[at] = reader.is_live(offsets)
        return ok

    return allowed


def _matching(
    snapshot: Snapshot, readers: Sequence[FragmentReader], condition: Filter | None, use_index: bool
) -> Ids | None:
    """The addresses of the live rows that match a condition, ascending; ``None`` without one."""
    return None if condition is None else np.sort(snapshot.matching(condition, readers, use_index=use_index))


def _among(addresses: Ids, ascending: Ids) -> npt.NDArray[np.bool_]:
    """Whether each address is one of the others."""
    at = np.searchsorted(ascending, addresses)
    found = at < len(ascending)
    found[found] = ascending[at[found]] == addresses[found]
    return found


def _flat(
    snapshot: Snapshot,
    readers: Sequence[FragmentReader],
    nearest: Nearest,
    metric: str,
    condition: Filter | None,
    use_index: bool,
) -> list[tuple[Ids, Floats]]:
    """Find the nearest rows in each chunk of some fragments, by their vectors; numpy releases the GIL."""
    if not readers:
        return []
    columns = snapshot.view.schema.project([nearest.column])
    projection = snapshot.view.stored(columns)
    matching = _matching(snapshot, readers, condition, use_index)

    def search_chunk(chunk: scan.Chunk) -> tuple[Ids, Floats]:
        reader = chunk.reader
        at = np.arange(chunk.start, chunk.stop, dtype=np.int64)
        batches = reader.read_batches(projection, chunk.start, chunk.stop)
        arrays = [vector_leaf(snapshot.view.show(b, columns).column(0)) for b in batches]
        parts = [nearest.distances(array, metric) for array in arrays]
        nearness = np.concatenate([np.array([], np.float32), *parts])
        keep = reader.live_mask(chunk.start, chunk.stop)
        if matching is not None:
            keep = _among(reader.row_metadata(ROW_ADDRESS, at), matching)
        within = nearest.in_range(nearness)
        if within is not None:
            keep = within if keep is None else keep & within
        if any(c.null_count for c in arrays):  # rows without a vector never match
            valid = np.concatenate([valid_rows(c) for c in arrays])
            keep = valid if keep is None else keep & valid
        if keep is not None:
            at, nearness = at[keep], nearness[keep]
        ids = reader.ids_of(at)
        order = nearest_first(nearness, ids, nearest.k)
        return ids[order], nearness[order]

    plan = ScanPlan(snapshot.view, columns)
    # Local files keep processors busy; threads wait for remote ones.
    local = all(r.is_local for r in readers)
    threads = min(scan.THREADS, os.cpu_count() or 1) if local else scan.THREADS
    with ThreadPoolExecutor(threads, thread_name_prefix="lance") as pool:
        opened = joined(together(readers), plan.stored_columns, pool=pool, ahead=threads)
        return list(pool.map(search_chunk, scan.chunks(plan, opened)))


def _rows(
    snapshot: Snapshot, plan: ScanPlan, nearest: Nearest, ids: Ids, distances: Floats, postfilter: Filter | None
) -> pa.Table:
    tested = plan.columns
    if postfilter is not None:
        have = set(tested.names)
        more = [f for f in snapshot.view.schema.fields if f.name in postfilter.columns and f.name not in have]
        tested = LanceSchema((*tested.fields, *more), tested.metadata)
    ids_read = [] if postfilter is None else id_columns(postfilter, snapshot.schema)
    # With ids, because a table without columns has no rows.
    table = snapshot.take_rows(ids, tested, row_metadata=tuple(dict.fromkeys((*plan.row_metadata, *ids_read, ROW_ID))))
    table = table.add_column(len(tested.fields), DISTANCE_FIELD, pa.array(distances))
    if postfilter is not None:
        table = table.filter(postfilter.mask(table.select([*tested.names, *ids_read])))
    table = table.slice(plan.offset, plan.limit)
    return table.select(schema(plan, nearest).names)


def explain(snapshot: Snapshot, plan: ScanPlan, nearest: Nearest, *, prefilter: bool) -> list[str]:
    """Describe the steps of a search, the last one first."""
    parts = vector_index(snapshot, nearest)
    metric = nearest.metric or (parts[0].opened.metric if parts else "l2")
    lines = [] if prefilter or plan.filter is None else [f"FilterExec: {plan.filter}"]
    covered = [id for part in parts for id in part.fragments]
    flat = not parts or any(f.id not in covered for f in snapshot.manifest.fragments)
    if flat or nearest.refine_factor:
        lines.append(f"KNNVectorDistance: k={nearest.k}, metric={metric}")
    if parts:
        most = "None" if nearest.maximum_nprobes is None else f"Some({nearest.maximum_nprobes})"
        name = next(i.name for i in snapshot.manifest.indices if str(i.uuid) == parts[0].uuid)
        lines.append(f"ANNSubIndex: name={name}, k={nearest.k}, deltas={len(parts)}, metric={metric.title()}")
        probes = f"minimum_nprobes={nearest.nprobes}, maximum_nprobes={most}"
        lines += [f"ANNIvfPartition: uuid={part.uuid}, {probes}" for part in parts]
    return lines


def index_step(snapshot: Snapshot, plan: ScanPlan) -> tuple[list[str], bool]:
    """Describe how indices find the rows of a filter, if they do; also return whether they answer the whole filter."""
    query = snapshot.index_query(plan.filter) if plan.use_index else None
    return ([], False) if query is None else ([f"ScalarIndexQuery: query={query.description}"], query.exact)
