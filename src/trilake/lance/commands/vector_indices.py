"""Create vector indices: train on a sample, then encode all vectors by partition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import FrozenBitMap

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.commands.format_options import check_format
from trilake.lance.commands.indices import check_name, default_name, described, file_version
from trilake.lance.commands.replan import replanned
from trilake.lance.file.errors import TooFewVectorsError, UnsupportedIndexError, WrongTypeError
from trilake.lance.file.extensions import storage_array
from trilake.lance.index import ivf_files, ivf_pq
from trilake.lance.index.vector_index import VectorIndex, write_index_files
from trilake.lance.scan.fragment_reader import FragmentReader, one_array
from trilake.lance.scan.search import in_fragments, metric_name
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.scan.vectors import vector_leaf, vector_type, vectors_and_rows, vectors_of
from trilake.lance.versions import operations as op
from trilake.lance.versions.manifest import VECTOR_DETAILS, IndexMetadata

#: Supported kinds; the legacy format supports only the first one.
VECTOR_KINDS = ("IVF_PQ", "IVF_FLAT", "IVF_SQ")
#: Sample size per partition, and minimum sample size (256 per codebook entry).
SAMPLE_RATE, SAMPLE_LEAST = 256, 1 << 16
#: Number of rows to encode at a time.
_CHUNK = 1 << 16

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class VectorIndexPlan:
    """The validated parameters of a new vector index.

    ``size`` is the dimension of the vectors, ``pieces`` the number of sub-vectors, ``words`` the codebook, ``numbers``
    the numpy type code of the column's values, and ``bits`` the size of a code, 8 or 4.
    """

    column: str
    name: str
    metric: str
    size: int
    partitions: int
    pieces: int
    replace: bool = False
    centroids: Floats | None = None
    words: Floats | None = None
    seed: int = 0
    kind: str = "IVF_PQ"
    numbers: str = "f4"
    bits: int = 8

    def check(self, snapshot: Snapshot) -> None:
        """Raise ``IndexExistsError`` if an index of that name exists and must not be replaced."""
        check_name(snapshot, self.name, self.column, replace=self.replace)

    def sample_size(self, rows: int) -> int:
        return min(rows, max(SAMPLE_RATE * self.partitions, SAMPLE_LEAST))

    def checked_sample(self, vectors: Floats, least: int | None = None) -> Floats:
        """Drop non-finite vectors of a sample.  Raises ``InvalidArgumentError`` if too few remain."""
        finite = vectors[np.isfinite(vectors).all(axis=1)]
        if len(finite) < (self.partitions if least is None else least):
            raise TooFewVectorsError(
                f"{len(finite)} vectors are too few for {self.partitions} partitions",
                help="choose fewer partitions",
                column=self.column,
            )
        return finite


def plan_index(
    snapshot: Snapshot,
    column: str | Sequence[str],
    index_type: str = "IVF_PQ",
    name: str | None = None,
    metric: str = "L2",
    *,
    replace: bool = False,
    num_partitions: int | None = None,
    num_sub_vectors: int | None = None,
    ivf_centroids: Any = None,
    pq_codebook: Any = None,
    target_partition_size: int | None = None,
    seed: int = 0,
    num_bits: int = 8,
) -> VectorIndexPlan:
    """Validate the parameters of a vector index.

    Parameters
    ----------
    index_type: ``IVF_PQ``; in datasets of 2.x also ``IVF_FLAT`` (full vectors) or ``IVF_SQ`` (one byte per value).
    metric: ``L2``, ``cosine`` or ``dot``.
    replace: whether to replace an index of that name.
    num_partitions: number of partitions; by default that of ``ivf_centroids``, or one per ``target_partition_size``
        rows (default 8,192).
    num_sub_vectors: number of sub-vectors for ``IVF_PQ``; must divide the dimension.
    ivf_centroids: array of shape (partitions, dimension), or a column of vectors; trained by default.
    pq_codebook: array of shape (sub-vectors, 256, dimension of a sub-vector); trained by default.
    seed: random seed, for reproducible indices.
    num_bits: bits per code of an ``IVF_PQ``; 4 in datasets of 2.x with an even number of sub-vectors.

    A column may also have lists of vectors, in datasets of 2.x and with the metric ``cosine``.  Vectors with NaN or
    infinity are not indexed.  Raises ``InvalidArgumentError`` and its subclasses
    ``UnknownColumnError``, ``WrongTypeError``, ``UnsupportedIndexError`` and ``IndexExistsError``.
    """
    column = only_column(column)
    if not isinstance(column, str):
        raise WrongTypeError(f"column must be a column name, got {column!r}")
    column = snapshot.view.schema.spelled(column)
    column_type = vector_type(snapshot, column, lists_too=True)
    distance = metric_name(metric) or "l2"
    if pa.types.is_list(column_type):
        if distance != "cosine" or snapshot.manifest.storage_version.is_legacy:
            raise UnsupportedIndexError(
                f"an index of lists of vectors with the metric {metric!r} is not supported",
                help='pass metric="cosine", in datasets of 2.x',
                column=column,
            )
        column_type = column_type.value_type
    size = column_type.list_size
    kind = str(index_type).upper()
    kinds = VECTOR_KINDS[:1] if snapshot.manifest.storage_version.is_legacy else VECTOR_KINDS
    if kind not in kinds:
        raise UnsupportedIndexError(
            f"index type {index_type!r} is not supported",
            help=f"vector index types of this dataset are {', '.join(kinds)}",
        )
    if kind != "IVF_PQ":
        num_sub_vectors, pq_codebook, num_bits = 1, None, 8
    if num_sub_vectors is None:
        raise InvalidArgumentError("num_sub_vectors is required for IVF_PQ", help="pass a divisor of the dimension")
    if num_partitions is None:
        if target_partition_size is not None:
            count("target_partition_size", target_partition_size, least=1, other_type=WrongTypeError)
        centroids_given = ivf_centroids is not None
        num_partitions = (
            len(ivf_centroids) if centroids_given else partitions_for(snapshot.count(), target_partition_size)
        )
    if isinstance(num_partitions, float):
        num_partitions = int(num_partitions)
    for argument, value in (("num_partitions", num_partitions), ("num_sub_vectors", num_sub_vectors)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise WrongTypeError(f"{argument} must be int, got {type(value)}")
    if num_partitions < 1:
        raise InvalidArgumentError(f"num_partitions must be positive, got {num_partitions}")
    ivf_pq.check(distance, size, num_sub_vectors)
    check_bits(snapshot, num_sub_vectors, num_bits)
    centroids = None if ivf_centroids is None else _centroids(ivf_centroids, num_partitions, size)
    words = None if pq_codebook is None else _words(pq_codebook, num_sub_vectors, size, 1 << num_bits)
    return VectorIndexPlan(
        column,
        name or default_name(snapshot, column, None),
        distance,
        size,
        int(num_partitions),
        int(num_sub_vectors),
        replace=replace,
        centroids=centroids,
        words=words,
        seed=seed,
        kind=kind,
        numbers=f"f{column_type.value_type.bit_width // 8}",
        bits=num_bits,
    )


def check_bits(snapshot: Snapshot, num_sub_vectors: int, num_bits: int) -> None:
    """Raise ``UnsupportedIndexError`` or ``InvalidArgumentError`` for an unsupported number of bits per code."""
    if num_bits != 8 and (num_bits != 4 or snapshot.manifest.storage_version.is_legacy):
        raise UnsupportedIndexError(
            f"num_bits={num_bits} is not supported",
            help="pass num_bits=8 for IVF_PQ, in datasets of 2.x also 4; IVF_RQ is not supported",
        )
    if num_bits == 4 and num_sub_vectors % 2:
        raise InvalidArgumentError(f"num_sub_vectors must be even for codes of 4 bits, got {num_sub_vectors}")


def only_column(column: str | Sequence[str]) -> str:
    """Return the column of an index.  Raises ``UnsupportedIndexError`` for several."""
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1:
        raise UnsupportedIndexError(f"an index on {len(names)} columns is not supported", help="index one column")
    return names[0]


def partitions_for(num_rows: int, target_partition_size: int | None) -> int:
    """Return the number of partitions for a target size, by default 8,192 rows.

    >>> partitions_for(100_000, 10_000)
    10
    """
    return min(max(num_rows // (target_partition_size or 8192), 1), 4096)


def create_vector_index(snapshot: Snapshot, plan: VectorIndexPlan, *, train: bool) -> Snapshot:
    """Build and commit a planned index, and return the new version.

    Without ``train``, and if there are no rows, the index has no files: ``optimize_indices`` trains it.
    """
    if not train and snapshot.manifest.storage_version.is_legacy:
        raise UnsupportedIndexError(
            "the legacy format does not support untrained vector indices", help="leave out train=False"
        )

    def replan(current: Snapshot) -> op.Operation:
        plan.check(current)
        has_rows = current.count() > 0 or current.manifest.storage_version.is_legacy
        if train and has_rows:
            return op.CreateIndex((build(current, plan),))
        details = ivf_files.Details(plan.metric, plan.kind, plan.pieces, plan.bits)
        uuid = UUID(current.runtime.new_id())
        return op.CreateIndex((_entry(current, uuid, plan.column, plan.name, FrozenBitMap(), details),))

    return replanned(snapshot, replan)


def plan_of_untrained(snapshot: Snapshot, column: str, index: IndexMetadata) -> VectorIndexPlan | None:
    """Plan an index that covers no rows like its manifest entry; ``None`` if it is trained, or cannot be built."""
    if index.details is None or index.details.type_url != VECTOR_DETAILS.type_url or index.fragment_bitmap:
        return None
    details = ivf_files.Details.parse(index.details.value)
    if details is None or details.kind not in VECTOR_KINDS or details.bits not in (4, 8):
        return None
    kind, metric, pieces, bits = details.kind, details.metric, details.pieces, details.bits
    return plan_index(snapshot, column, kind, index.name, metric, replace=True, num_sub_vectors=pieces, num_bits=bits)


def build(snapshot: Snapshot, plan: VectorIndexPlan) -> IndexMetadata:
    """Train and write an index of all rows, and return its manifest entry."""
    rng = np.random.default_rng(plan.seed)
    vectors = plan.checked_sample(sample_part(snapshot, plan, sample_ranks(snapshot, plan, rng)))
    model = learned(plan, vectors, rng, legacy=snapshot.manifest.storage_version.is_legacy)
    rows = ivf_pq.by_partition(model, *encoded(snapshot, plan.column, model))
    return write_index(snapshot, plan.column, plan.name, model, rows)


def learned(plan: VectorIndexPlan, vectors: Floats, rng: np.random.Generator, *, legacy: bool) -> AnyModel:
    """Train centroids and a codebook or bounds on a sample, unless they are supplied."""
    centroids, words = plan.centroids, plan.words
    if centroids is None:
        centroids = ivf_pq.train_centroids(vectors, plan.partitions, rng, metric=plan.metric, legacy=legacy)
    if plan.kind != "IVF_PQ":
        model = ivf_pq.VectorModel(plan.metric, centroids, numbers=plan.numbers)
        if plan.kind == "IVF_FLAT":
            return model
        numbers = model.prepared(vectors)
        low, high = float(numbers.min()), float(numbers.max())
        return replace(model, bounds=(low, high if high > low else low + 1))
    if words is None:
        residuals = ivf_pq.sample_residuals(vectors, centroids, plan.metric, legacy=legacy)
        words = ivf_pq.train_words(residuals, plan.pieces, rng, bits=plan.bits)
    return ivf_pq.Model(plan.metric, centroids, words, legacy, plan.numbers)


def sample_ranks(
    snapshot: Snapshot, plan: VectorIndexPlan, rng: np.random.Generator | None = None
) -> npt.NDArray[np.int64]:
    """Return the positions of the sample; without ``rng``, they are the same in every process."""
    total = snapshot.count()
    if not total:
        return np.empty(0, np.int64)
    rng = rng or np.random.default_rng(plan.seed)
    ranks: npt.NDArray[np.int64] = np.sort(rng.choice(total, plan.sample_size(total), replace=False))
    return ranks


def sample_part(snapshot: Snapshot, plan: VectorIndexPlan, ranks: npt.NDArray[np.int64]) -> Floats:
    """Read the vectors at the positions ``ranks``."""
    if not len(ranks):
        return np.zeros((0, plan.size), np.float32)
    table = snapshot.take(ranks, snapshot.view.schema.project([plan.column]))
    return vectors_and_rows(vector_leaf(one_array(table.column(0))), plan.size)[0]


AnyModel = ivf_pq.Model | ivf_pq.VectorModel
#: Encoded rows: partitions, codes and row ids.
Encoded = tuple[npt.NDArray[np.int32], ivf_pq.Codes, ivf_pq.RowIds]


def encoded(
    snapshot: Snapshot, column: str, model: AnyModel, readers: Iterable[FragmentReader] | None = None
) -> Encoded:
    """Encode the live rows of some or all fragments, except nulls and non-finite vectors."""
    none = np.empty(0, np.int32)
    parts = [(none, model.codes(np.empty((0, model.dimension), np.float32), none), np.empty(0, np.uint64))]
    for reader in snapshot.readers if readers is None else readers:
        for start in range(0, reader.physical_rows, _CHUNK):
            stop = min(start + _CHUNK, reader.physical_rows)
            parts.append(encoded_rows(snapshot, column, model, reader, start, stop))
    partitions, codes, ids = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return partitions, codes, ids


def encoded_rows(
    snapshot: Snapshot, column: str, model: AnyModel, reader: FragmentReader, start: int, stop: int
) -> Encoded:
    """Encode a range of rows of a fragment, see :func:`encoded`."""
    columns = snapshot.view.schema.project([column])
    batches = reader.read_batches(snapshot.view.stored(columns), start, stop)
    visible = [snapshot.view.show(batch, columns) for batch in batches]
    parts = [vectors_and_rows(vector_leaf(batch.column(0)), model.dimension) for batch in visible]
    firsts = np.cumsum([start, *(batch.num_rows for batch in visible)])
    vectors = np.concatenate([np.empty((0, model.dimension), np.float32), *(vectors for vectors, _ in parts)])
    rows = np.concatenate([np.empty(0, np.int64), *(at + first for (_, at), first in zip(parts, firsts, strict=False))])
    keep = np.isfinite(vectors).all(axis=1)
    live = reader.live_mask(start, stop)
    if live is not None:
        keep &= live[rows - start]
    ids = reader.ids_of(rows[keep])
    return *ivf_pq.encode(model, vectors if keep.all() else vectors[keep]), ids


def write_index(
    snapshot: Snapshot, column: str, name: str, model: AnyModel, rows: ivf_pq.Rows, uuid: UUID | None = None
) -> IndexMetadata:
    """Write an index of all rows, and return its manifest entry."""
    uuid = uuid or UUID(snapshot.runtime.new_id())
    files = write_index_files(
        snapshot.store,
        f"_indices/{uuid}",
        model,
        rows,
        file_version(snapshot, legacy=model.legacy),
        name=name,
        column=column,
        dataset_version=snapshot.version,
    )
    covered = FrozenBitMap([f.id for f in snapshot.manifest.fragments])
    details = None if model.legacy else ivf_files.Details.of(model)
    return _entry(snapshot, uuid, column, name, covered, details, files)


def _entry(
    snapshot: Snapshot,
    uuid: UUID,
    column: str,
    name: str,
    covered: FrozenBitMap,
    details: ivf_files.Details | None,
    files: tuple[tuple[str, int], ...] = (),
) -> IndexMetadata:
    field = snapshot.view.schema.field(column)
    entry = IndexMetadata(uuid, (field.id,), name, snapshot.version, covered)
    if details is None:
        return entry
    return described(snapshot, replace(entry, details=replace(VECTOR_DETAILS, value=details.serialized())), files)


def extended(snapshot: Snapshot, column: str, index: IndexMetadata, opened: VectorIndex) -> IndexMetadata:
    """Rewrite an index with the rows of uncovered fragments, and without deleted rows.

    Fragments with vectors changed in place are no longer covered.
    """
    covered = index.fragment_bitmap or FrozenBitMap()
    new = encoded(snapshot, column, opened.model, (r for r in snapshot.readers if r.fragment.id not in covered))

    def move(ids: ivf_pq.RowIds) -> tuple[ivf_pq.RowIds, npt.NDArray[np.bool_]]:
        return ids, snapshot.live_rows(snapshot.addresses_of(ids)) & in_fragments(snapshot, covered, ids)

    rows = opened.moved(move, ivf_pq.by_partition(opened.model, *new))
    return write_index(snapshot, column, index.name, opened.model, rows)


def _centroids(values: Any, partitions: int, size: int) -> Floats:
    if isinstance(values, pa.Array):
        values = vectors_of(storage_array(values), size)
    centroids = _numbers(values, "the centroids")
    if centroids.shape != (partitions, size):
        raise InvalidArgumentError(f"the centroids must have shape {(partitions, size)}, got {centroids.shape}")
    return centroids


def _numbers(values: Any, what: str) -> Floats:
    numbers: npt.NDArray[Any] = np.asarray(values)
    if numbers.dtype.kind != "f":
        raise WrongTypeError(f"{what} must be floating-point numbers, got {numbers.dtype}")
    return numbers.astype(np.float32, copy=False)


def _words(values: Any, pieces: int, size: int, count: int) -> Floats:
    if isinstance(values, pa.FixedShapeTensorArray):
        values = values.to_numpy_ndarray()
    shape = (pieces, count, size // pieces)
    if isinstance(values, pa.FixedSizeListArray) and values.type.list_size * len(values) == size * count:
        values = values.flatten().to_numpy(zero_copy_only=False).reshape(shape)
    words = _numbers(values, "the codebook")
    if words.shape != shape:
        raise InvalidArgumentError(f"the codebook must have shape {shape}, got {words.shape}")
    return words


def checked_options(options: Mapping[str, Any], metric: str, accelerator: Any) -> dict[str, Any]:
    """Validate the other options of an index, and drop those without effect.

    ``metric_type`` is an alias of ``metric``.  Raises ``InvalidArgumentError`` for an unknown option or accelerator
    and for two metrics, ``WrongTypeError`` for other types of ``num_bits``, and ``UnsupportedIndexError`` for OPQ.
    """
    if isinstance(accelerator, str) and not re.fullmatch(r"cpu|mps|cuda(:\d+)?", accelerator):
        raise InvalidArgumentError(
            f"unknown accelerator {accelerator!r}", help="accelerators are cuda and mps; both are optional"
        )
    if options.get("use_opq"):
        raise UnsupportedIndexError("OPQ is not supported", help="leave out use_opq")
    bits = options.get("num_bits", 8)
    if isinstance(bits, bool) or not isinstance(bits, int | np.integer):
        raise WrongTypeError(f"num_bits must be int, got {type(bits)}")
    other = options.get("metric_type", metric)
    if metric_name(metric) not in ("l2", metric_name(other)):
        raise InvalidArgumentError(f"metric is {metric!r}, but metric_type is {other!r}", help="pass metric alone")
    supported = {"seed", "pq_codebook", "target_partition_size", "num_bits"}
    ignored = {"metric_type", "use_opq", "max_opq_iterations", "max_iterations", "sample_rate", "max_iters"}
    ignored |= {"shuffle_partition_batches", "shuffle_partition_concurrency", "one_pass_ivfpq", "filter_nan"}
    ignored |= {"skip_transpose", "index_file_version", "storage_options", "index_cache_size"}
    check_format({n: v for n, v in options.items() if n not in supported | ignored}, of="an index")
    return {"metric": other, **{name: value for name, value in options.items() if name in supported}}
