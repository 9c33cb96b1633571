"""``DatasetIndices``: create, merge, list, describe and drop the indices of a dataset."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from trilake.common.arguments import count, flag
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import index_segments, indices, vector_indices
from trilake.lance.commands.format_options import check_format
from trilake.lance.file.errors import UnknownIndexError, WrongTypeError
from trilake.lance.indices import IndexConfig
from trilake.lance.pylance.dataset_part import D, DatasetPart
from trilake.lance.pylance.operation import Index
from trilake.lance.pylance.stats import IndexDescription, own_statistics
from trilake.lance.scan.snapshot import Snapshot


class DatasetIndices(DatasetPart[D]):
    """The indices of a dataset."""

    def create_scalar_index(
        self,
        /,
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
        name: name of the index, by default ``<column>_idx``, with a number if an index of another column or kind has
            that name.
        replace: whether to replace an index of that name.
        train: whether to index the rows now; otherwise ``optimize.optimize_indices`` indexes them later.
        later: options of newer pylance releases; raises for unsupported ones.

        Raises ``UnsupportedIndexError`` and ``UnknownColumnError``.
        """
        snapshot = self._dataset.snapshot
        kind, rows_per_zone = _kind(index_type, later)
        indices.scalar_kind(snapshot, kind)
        check_format(later, of="a scalar index")
        column = vector_indices.only_column(column)
        indexed = indices.create_scalar_index(
            snapshot, column, kind, name, replace=replace, with_rows=train, rows_per_zone=rows_per_zone
        )
        self._dataset.moved(indexed)

    def create_index(
        self,
        /,
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
    ) -> D:
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
        """
        train, dataset = more.pop("train", None), self._dataset
        train = train is None or flag("train", train)
        plan = vector_indices.plan_index(
            dataset.snapshot,
            column,
            index_type,
            name,
            replace=replace,
            num_partitions=num_partitions,
            num_sub_vectors=num_sub_vectors,
            ivf_centroids=ivf_centroids,
            **vector_indices.checked_options(more, metric, accelerator),
        )
        snapshot = vector_indices.create_vector_index(dataset.snapshot, plan, train=train)
        dataset.moved(snapshot)
        return dataset._beside(Snapshot(snapshot.store, snapshot.manifest, snapshot.runtime, index_cache_size))

    def create_index_uncommitted(
        self,
        /,
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
        more: options of :meth:`create_index` and :meth:`create_scalar_index`; ``train`` must be true.

        Raises ``InvalidArgumentError`` and its subclasses.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-segments", max_rows_per_file=2)
        >>> segments = [ds.create_index_uncommitted("a", "BTREE", fragment_ids=[id]) for id in (0, 1)]
        >>> ds = ds.commit_existing_index_segments("a_idx", "a", segments)
        >>> [(index.name, len(index.segments), index.num_rows_indexed) for index in ds.describe_indices()]
        [('a_idx', 2, 4)]
        """
        if fragment_ids is None:
            raise InvalidArgumentError("fragment_ids is required", help="pass the ids of the fragments to index")
        if more.pop("index_uuid", None) is not None:
            raise InvalidArgumentError("index_uuid is no longer supported", help="leave it out: trilake chooses the id")
        index_type, rows_per_zone = _kind(index_type, more)
        column, snapshot = vector_indices.only_column(column), self._dataset.snapshot
        of_vectors = vector_indices.checked_options(more, metric, accelerator)
        if index_type.upper().startswith("IVF"):
            plan = vector_indices.plan_index(
                snapshot,
                column,
                index_type,
                name,
                replace=replace,
                num_partitions=num_partitions,
                num_sub_vectors=num_sub_vectors,
                ivf_centroids=ivf_centroids,
                pq_codebook=pq_codebook,
                **of_vectors,
            )
            return Index.of(index_segments.build_vector(snapshot, plan, fragment_ids))
        return Index.of(index_segments.build_scalar(snapshot, column, index_type, name, fragment_ids, rows_per_zone))

    def merge_existing_index_segments(self, segments: Sequence[Index]) -> Index:
        """Build one segment for the fragments of ``segments``, without a commit.

        Raises ``InvalidArgumentError`` if their columns or kinds differ, or if they share a fragment.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3, 4]}), "memory://doc-lance-merge-parts", max_rows_per_file=2)
        >>> segments = [ds.create_index_uncommitted("a", "BITMAP", fragment_ids=[id]) for id in (0, 1)]
        >>> ds.merge_existing_index_segments(segments).fragment_ids
        {0, 1}
        """
        return Index.of(index_segments.merge(self._dataset.snapshot, [s.entry() for s in segments]))

    def commit_existing_index_segments(self, index_name: str, column: str, segments: Sequence[Index]) -> D:
        """Commit segments of the index ``index_name`` of ``column``.

        ``segments`` are results of :meth:`create_index_uncommitted` and :meth:`merge_existing_index_segments`.  If the
        index exists, they replace its segments of the same fragments; others are kept.  Raises
        ``InvalidArgumentError``, and ``ConflictError`` if their rows have moved or changed.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2]}), "memory://doc-lance-commit-segments")
        >>> segment = ds.create_index_uncommitted("a", "ZONEMAP", fragment_ids=[0])
        >>> ds.commit_existing_index_segments("a_idx", "a", [segment]).list_indices()[0]["type"]
        'ZoneMap'
        """
        dataset, entries = self._dataset, [s.entry() for s in segments]
        dataset.moved(index_segments.commit(dataset.snapshot, index_name, column, entries))
        return dataset

    def drop_index(self, name: str) -> None:
        """Drop the index ``name``.  Raises ``UnknownIndexError``."""
        self._dataset.moved(indices.drop_index(self._dataset.snapshot, name))

    def list_indices(self) -> list[dict[str, Any]]:
        """List the indices: ``name``, ``type``, ``uuid``, ``fields``, ``version``, ``fragment_ids`` and ``base_id``.

        The type is ``BTree``, ``Bitmap``, ``IVF_PQ`` or similar.
        """
        return indices.list_indices(self._dataset.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """Return statistics of the index ``index_name``.  Deprecated in favor of ``stats.index_stats``.

        Raises ``UnknownIndexError``.

        >>> from trilake.lance import write_dataset
        >>> ds = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-index-statistics")
        >>> ds.create_scalar_index("a", name="numbers")
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # that there is another name
        ...     statistics = ds.index_statistics("numbers")
        >>> statistics["index_type"]
        'BTree'
        """
        warnings.warn("use LanceDataset.stats.index_stats() instead", DeprecationWarning, stacklevel=3)
        return own_statistics(self._dataset.snapshot, indices.find(self._dataset.snapshot, index_name))

    def describe_indices(self) -> list[IndexDescription]:
        """Describe the indices, including the number of rows that each one covers."""
        snapshot = self._dataset.snapshot
        names = dict.fromkeys(index.name for index in snapshot.manifest.indices if not index.is_note)
        return [IndexDescription.of(snapshot, name) for name in names]

    def prewarm_index(
        self, name: str, *, with_position: bool = False, index_segments: Iterable[str | UUID] | None = None
    ) -> None:
        """Load the index ``name`` into the cache.

        ``index_segments`` are the ids of the segments to load, by default all; ``with_position`` has no effect.  Raises
        ``UnknownIndexError``, a ``KeyError``.
        """
        flag("with_position", with_position)
        segments = None if index_segments is None else {str(segment) for segment in index_segments}
        opened = self._dataset.snapshot.indices
        for index in indices.parts(self._dataset.snapshot, name):
            if segments is not None and str(index.uuid) not in segments:
                continue
            vector = opened.vector(index)
            if vector is not None:
                vector.prewarm()
            else:
                opened.scalar(index)

    def centroids(self, *, index_name: str | None = None, column: str | None = None) -> pa.FixedSizeListArray:
        """Return the partition centroids of a vector index, by index name or column.

        Parameters
        ----------
        index_name, column: name of the index, or its column; pass one of them.

        Raises ``UnknownIndexError``, a ``KeyError``.
        """
        if index_name is None and column is None:
            raise InvalidArgumentError("index_name or column is required", help="pass one of them")
        snapshot = self._dataset.snapshot
        field = None if column is None else snapshot.view.schema.find(column)
        of_column = [] if field is None else [i for i in snapshot.manifest.indices if i.fields == (field.id,)]
        for entry in of_column if index_name is None else [indices.find(snapshot, index_name)]:
            opened = snapshot.indices.vector(entry)
            if opened is not None:
                return opened.centroids
        raise UnknownIndexError(
            f"column {column!r} has no vector index" if index_name is None else f"{index_name} is not a vector index"
        )


def _kind(index_type: str | IndexConfig, options: dict[str, Any]) -> tuple[str, int | None]:
    """Return the name of the kind, and the rows per zone, which are removed from ``options``."""
    if isinstance(index_type, IndexConfig):
        options.update(index_type.parameters)
        index_type = index_type.index_type
    rows_per_zone = options.pop("rows_per_zone", None)
    if rows_per_zone is not None:
        count("rows_per_zone", rows_per_zone, least=1, other_type=WrongTypeError)
    return str(index_type), rows_per_zone
