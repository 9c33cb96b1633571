"""``IndexedDataset``: a dataset with indices, which are made, named, described and dropped."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Self
from uuid import UUID

import pyarrow as pa

from trilake.common.arguments import flag
from trilake.lance.commands import indices, vector_indices
from trilake.lance.commands.format_options import check_format
from trilake.lance.file.errors import UnsupportedIndexError
from trilake.lance.pylance.arrow_dataset import ArrowDataset
from trilake.lance.pylance.stats import IndexDescription
from trilake.lance.scan.snapshot import Snapshot


class IndexedDataset(ArrowDataset):
    """The indices of a dataset, by the names that users of the format know."""

    def create_scalar_index(
        self,
        column: str | list[str],
        index_type: str = "BTREE",
        name: str | None = None,
        *,
        replace: bool = True,
        train: bool = True,
        **later: Any,
    ) -> None:
        """Index a column of numbers, booleans, texts, bytes, dates or times; filters find its rows then.

        Parameters
        ----------
        column: its name; ``"struct.field"`` is a part of a column.
        index_type: ``"BTREE"``, or in datasets of 2.x ``"BITMAP"``, in capitals or not.
        name: of the index; made of the column's where it is left out.
        replace: whether an index of that name may be there.
        train: without it the index has no rows yet, which ``optimize.optimize_indices`` puts into it.
        later: what programs for later releases say; what the format has not is refused.

        Raises ``UnsupportedIndexError`` and ``UnknownColumnError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-scalar-index")
        >>> made.create_scalar_index("a", name="numbers")
        >>> [(index["name"], index["type"], index["fields"]) for index in made.list_indices()]
        [('numbers', 'BTree', ['a'])]
        """
        check_format(later, of="a scalar index")
        names = [column] if isinstance(column, str) else list(column)
        if len(names) != 1:
            raise UnsupportedIndexError(f"a scalar index of {len(names)} columns cannot be made", help="name one")
        self.moved(
            indices.create_scalar_index(self.snapshot, names[0], index_type, name, replace=replace, with_rows=train)
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
        """Index a column of vectors for searches of the nearest; the type is ``IVF_PQ``.

        Parameters
        ----------
        column, index_type, name, replace, num_partitions, ivf_centroids, num_sub_vectors: see
            :func:`trilake.lance.commands.vector_indices.plan_index`.
        metric: ``"L2"``, ``"cosine"`` or ``"dot"``.
        accelerator: may be named, but is not used.
        index_cache_size: entries of the cache of the dataset that is returned.
        more: ``pq_codebook`` and ``seed`` of ``plan_index``; ``metric_type`` is another name of ``metric``, and
            ``num_bits`` can only be 8.

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
        snapshot = vector_indices.create_vector_index(self.snapshot, plan)
        self.moved(snapshot)
        indexed = Snapshot(snapshot.store, snapshot.manifest, snapshot.runtime, index_cache_size)
        return self._beside(indexed)

    def drop_index(self, name: str) -> None:
        """Take the index ``name`` out of the dataset, from this version on.  Raises ``UnknownIndexError``.

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
        """The indices: ``name``, ``type``, ``uuid``, ``fields``, ``version``, ``fragment_ids`` and ``base_id``.

        The type is the kind, such as ``BTree``, ``Bitmap`` or ``IVF_PQ``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> made = write_dataset(pa.table({"a": [1, 2, 3]}), "memory://doc-lance-list-indices")
        >>> made.create_scalar_index("a", name="numbers")
        >>> [(index["name"], index["fields"]) for index in made.list_indices()]
        [('numbers', ['a'])]
        """
        return indices.list_indices(self.snapshot)

    def index_statistics(self, index_name: str) -> dict[str, Any]:
        """What the index ``index_name`` says of itself.  Other implementations prefer ``stats.index_stats``.

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
        """Whether there is an index."""
        return bool(self.snapshot.manifest.indices)

    def describe_indices(self) -> list[IndexDescription]:
        """The indices, and how many rows each covers.

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
        """Read the index ``name`` now, and not with the first search.

        ``index_segments`` are the ids of some of its parts; ``with_position`` changes nothing.

        Raises ``UnknownIndexError``, which is a ``KeyError``.

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
        """The centres of the partitions of an index of vectors, by its name or by its column.

        Parameters
        ----------
        index_name, column: one of the two.

        Raises ``UnknownIndexError``, which is a ``KeyError``.

        >>> import pyarrow as pa
        >>> from trilake.lance import write_dataset
        >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array([n % 7 for n in range(1024)], pa.float32()), 4)
        >>> made = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-centroids")
        >>> indexed = made.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2, seed=1)
        >>> len(indexed.centroids(column="v"))
        2
        """
        return indices.centroids(self.snapshot, index_name, column)
