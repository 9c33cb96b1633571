"""``IndexedDataset``: create, list, describe and drop the indices of a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Self
from uuid import UUID

import pyarrow as pa

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import index_segments, indices, vector_indices
from trilake.lance.commands.format_options import check_format
from trilake.lance.file.errors import UnsupportedIndexError, WrongTypeError
from trilake.lance.pylance.arrow_dataset import ArrowDataset
from trilake.lance.pylance.operation import Index
from trilake.lance.pylance.stats import IndexDescription
from trilake.lance.pylance.vector_models import IndexConfig
from trilake.lance.scan.snapshot import Snapshot


class IndexedDataset(ArrowDataset):
    """A dataset with methods for its indices."""

    def create_scalar_index(
        self,
        column: str | list[str],
        index_type: str | IndexConfig = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        **later: Any,
    ) -> None:
        """Create a scalar index on a column, which filters can use.

        Parameters
        ----------
        column: name of the column; ``"struct.field"`` is a nested field.
        index_type: ``"BTREE"``; in datasets of 2.x also ``"BITMAP"``, ``"ZONEMAP"`` and, for lists, ``"LABEL_LIST"``,
            in any case; or an ``IndexConfig``.
        name: name of the index, by default derived from the column.
        replace: whether to replace an index of that name.
        train: whether to index the rows now; otherwise ``optimize.optimize_indices`` indexes them later.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``UnsupportedIndexError`` and ``UnknownColumnError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-scalar-index")
        >>> made.create_scalar_index("a", name="numbers")
        >>> [(index["name"], index["type"], index["fields"]) for index in made.list_indices()]
        [('numbers', 'BTree', ['a'])]
        """
        kind, rows_per_zone = _kind(index_type, later)
        indices.scalar_kind(self.snapshot, kind)
        check_format(later, of="a scalar index")
        only = _only(column)
        self.moved(
            indices.create_scalar_index(
                self.snapshot, only, kind, name, replace=replace, with_rows=train, rows_per_zone=rows_per_zone
            )
        )

    def create_index(
        self,
        column: str | Sequence[str],
        index_type: str,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        index_cache_size: int | None = None,
        **more: Any,
    ) -> Self:
        """Create a vector index: ``IVF_PQ``, ``IVF_FLAT`` or ``IVF_SQ``.

        Parameters
        ----------
        column, index_type, name, replace, num_partitions, ivf_centroids, num_sub_vectors: see
            :func:`trilake.lance.commands.vector_indices.plan_index`.
        metric: ``"L2"``, ``"cosine"`` or ``"dot"``.
        accelerator: accepted for compatibility.
        index_cache_size: number of cache entries of the returned dataset.
        more: ``pq_codebook``, ``seed`` and ``num_bits`` of ``plan_index``; ``metric_type``, an alias of ``metric``;
            ``train=False`` for an index without rows, which ``optimize_indices`` trains.

        Raises ``UnsupportedIndexError``, ``UnknownColumnError`` and ``InvalidArgumentError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([n % 7 for n in range(1024)], pa.float32()), 4)
        >>> made = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-create-index")
        >>> indexed = made.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, seed=1)
        >>> indexed.has_index, indexed.centroids(column="v").type.list_size, len(indexed.centroids(index_name="v_idx"))
        (True, 4, 2)
        >>> indexed.to_table(nearest={"column": "v", "q": [0, 1, 2, 3], "k": 3}).num_rows
        3
        """
        train = more.pop("train", None)
        checked = vector_indices.checked_options(more, metric, accelerator)
        plan = vector_indices.plan_index(
            self.snapshot,
            column,
            index_type,
            name,
            replace=replace,
            num_partitions=num_partitions,
            num_sub_vectors=num_sub_vectors,
            ivf_centroids=ivf_centroids,
            **checked,
        )
        snapshot = vector_indices.create_vector_index(self.snapshot, plan, train=train is None or flag("train", train))
        self.moved(snapshot)
        indexed = Snapshot(snapshot.store, snapshot.manifest, snapshot.runtime, index_cache_size)
        return self._beside(indexed)

    def create_index_uncommitted(
        self,
        column: str | Sequence[str],
        index_type: str | IndexConfig,
        name: str | None = None,
        metric: str = "L2",
        replace: bool = False,
        num_partitions: int | None = None,
        ivf_centroids: Any = None,
        pq_codebook: Any = None,
        num_sub_vectors: int | None = None,
        accelerator: Any = None,
        *,
        fragment_ids: Sequence[int] | None = None,
        **more: Any,
    ) -> Index:
        """Build an index segment for some fragments without a commit.

        Parameters
        ----------
        column, index_type, name: column, kind and name of the index, scalar or vector.
        metric, replace, num_partitions, ivf_centroids, pq_codebook, num_sub_vectors, accelerator: see
            :meth:`create_index`.  Segments that will be merged need the same centroids and codebook.
        fragment_ids: fragments to index; required.
        more: options of :meth:`create_index` and :meth:`create_scalar_index`.

        Raises ``InvalidArgumentError`` and its subclasses.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-segments", max_rows_per_file=2)
        >>> segments = [made.create_index_uncommitted("a", "BTREE", fragment_ids=[id]) for id in (0, 1)]
        >>> made = made.commit_existing_index_segments("a_idx", "a", segments)
        >>> [(index.name, len(index.segments), index.num_rows_indexed) for index in made.describe_indices()]
        [('a_idx', 2, 4)]
        """
        if fragment_ids is None:
            raise InvalidArgumentError("fragment_ids is required", help="pass the ids of the fragments to index")
        if more.pop("index_uuid", None) is not None:
            raise InvalidArgumentError("index_uuid is no longer supported", help="leave it out: trilake chooses the id")
        kind, rows_per_zone = _kind(index_type, more)
        only = _only(column)
        if kind.upper().startswith("IVF"):
            checked = vector_indices.checked_options({**more, "pq_codebook": pq_codebook}, metric, accelerator)
            plan = vector_indices.plan_index(
                self.snapshot,
                only,
                kind,
                name,
                replace=replace,
                num_partitions=num_partitions,
                num_sub_vectors=num_sub_vectors,
                ivf_centroids=ivf_centroids,
                **checked,
            )
            return Index.of(index_segments.build_vector(self.snapshot, plan, fragment_ids))
        check_format(more, of="a scalar index")
        return Index.of(index_segments.build_scalar(self.snapshot, only, kind, name, fragment_ids, rows_per_zone))

    def merge_existing_index_segments(self, segments: Sequence[Index]) -> Index:
        """Build one segment for the fragments of ``segments``, without a commit.

        Raises ``InvalidArgumentError`` if their columns or kinds differ, or if they share a fragment.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-merge-parts", max_rows_per_file=2)
        >>> segments = [made.create_index_uncommitted("a", "BITMAP", fragment_ids=[id]) for id in (0, 1)]
        >>> made.merge_existing_index_segments(segments).fragment_ids
        {0, 1}
        """
        return Index.of(index_segments.merge(self.snapshot, [s.entry() for s in segments]))

    def commit_existing_index_segments(self, index_name: str, column: str, segments: Sequence[Index]) -> Self:
        """Commit segments as the index ``index_name`` of ``column``, replacing an index of that name.

        ``segments`` are results of :meth:`create_index_uncommitted` and :meth:`merge_existing_index_segments`.  Raises
        ``InvalidArgumentError``, and ``ConflictError`` if their rows have moved or changed.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-commit-segments")
        >>> segment = made.create_index_uncommitted("a", "ZONEMAP", fragment_ids=[0])
        >>> made.commit_existing_index_segments("a_idx", "a", [segment]).list_indices()[0]["type"]
        'ZoneMap'
        """
        self.moved(index_segments.commit(self.snapshot, index_name, column, [s.entry() for s in segments]))
        return self

    def drop_index(self, name: str) -> None:
        """Drop the index ``name``.  Raises ``UnknownIndexError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-drop-index")
        >>> made.create_scalar_index("a", name="numbers")
        >>> made.drop_index("numbers")
        >>> made.list_indices()
        []
        """
        self.moved(indices.drop_index(self.snapshot, name))

    def list_indices(self) -> list[dict[str, Any]]:
        """List the indices: ``name``, ``type``, ``uuid``, ``fields``, ``version``, ``fragment_ids`` and ``base_id``.

        The type is ``BTree``, ``Bitmap``, ``IVF_PQ`` or similar.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-list-indices")
        >>> made.create_scalar_index("a", name="numbers")
        >>> [(index["name"], index["fields"]) for index in made.list_indices()]
        [('numbers', ['a'])]
        """
        return indices.list_indices(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Return statistics of the index ``index_name``.  Deprecated in favor of ``stats.index_stats``.

        Raises ``UnknownIndexError``.

        >>> import pyarrow as pa
        >>> import warnings
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-index-statistics")
        >>> made.create_scalar_index("a", name="numbers")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # that there is another name
        ...     statistics = made.index_statistics("numbers")
        >>> statistics["index_type"]
        'BTree'
        """
        warnings.warn("use LanceDataset.stats.index_stats() instead", DeprecationWarning, stacklevel=2)
        return indices.own_statistics(self.snapshot, index_name)

    @property
    def has_index(self) -> bool:
        """Whether the dataset has an index."""
        return bool(self.snapshot.manifest.indices)

    def describe_indices(self) -> list[IndexDescription]:
        """Describe the indices, including the number of rows that each one covers.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-describe-indices")
        >>> made.create_scalar_index("a", name="numbers")
        >>> [(index.name, index.num_rows_indexed) for index in made.describe_indices()]
        [('numbers', 3)]
        """
        names = dict.fromkeys(index.name for index in self.snapshot.manifest.indices if not index.is_note)
        return [IndexDescription.of(self.snapshot, name) for name in names]

    def prewarm_index(
        self, name: str, *, with_position: bool = False, index_segments: Iterable[str | UUID] | None = None
    ) -> None:
        """Load the index ``name`` into the cache.

        ``index_segments`` are the ids of the segments to load, by default all; ``with_position`` has no effect.

        Raises ``UnknownIndexError``, a ``KeyError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-prewarm")
        >>> made.create_scalar_index("a", name="numbers")
        >>> made.prewarm_index("numbers")
        """
        flag("with_position", with_position)
        segments = None if index_segments is None else {str(segment) for segment in index_segments}
        indices.prewarm(self.snapshot, name, segments)

    def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.FixedSizeListArray:
        """Return the partition centroids of a vector index, by index name or column.

        Parameters
        ----------
        index_name, column: name of the index, or its column; pass one of them.

        Raises ``UnknownIndexError``, a ``KeyError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([n % 7 for n in range(1024)], pa.float32()), 4)
        >>> made = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-centroids")
        >>> indexed = made.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, seed=1)
        >>> len(indexed.centroids(column="v"))
        2
        """
        return indices.centroids(self.snapshot, index_name, column)


def _only(column: str | Sequence[str]) -> str:
    names = [column] if isinstance(column, str) else list(column)
    if len(names) != 1:
        raise UnsupportedIndexError(f"an index on {len(names)} columns is not supported", help="index one column")
    return names[0]


def _kind(index_type: str | IndexConfig, options: dict[str, Any]) -> tuple[str, int | None]:
    """Return the name of the kind, and the rows per zone, which are removed from ``options``."""
    if isinstance(index_type, IndexConfig):
        options.update(index_type.parameters)
        index_type = index_type.index_type
    rows_per_zone = options.pop("rows_per_zone", None)
    if rows_per_zone is not None:
        count("rows_per_zone", rows_per_zone, least=1, other_type=WrongTypeError)
    return str(index_type), rows_per_zone
