"""Trained models of vector indices: ``IvfModel``, ``PqModel`` and ``IndicesBuilder``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
import pyarrow as pa

from trilake.common.arguments import count
from trilake.errors import InvalidArgumentError
from trilake.lance.commands import index_segments, indices, vector_indices
from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.fragment import LanceFragment
from trilake.lance.index import ivf_pq
from trilake.lance.index.vector_index import VectorIndex
from trilake.lance.pylance.data_files import LanceFileReader, LanceFileWriter
from trilake.lance.pylance.stats import IndexSegmentDescription
from trilake.lance.scan.fragment_reader import ROW_ID, one_array
from trilake.lance.scan.search import metric_name
from trilake.lance.scan.snapshot import Snapshot
from trilake.lance.scan.vectors import vector_leaf, vector_type, vectors_and_rows, vectors_of

__all__ = ["IndexConfig", "IndexFileVersion", "IndexSegmentDescription", "IndicesBuilder", "IvfModel", "PqModel"]


class IndexFileVersion(StrEnum):
    """File versions of vector indices."""

    LEGACY = "Legacy"
    V3 = "V3"


@dataclass
class IndexConfig:
    """The kind of an index, and its parameters."""

    index_type: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class IvfModel:
    """Partition centroids and the distance they were trained for.

    >>> centroids = pa.FixedSizeListArray.from_arrays(pa.array([0, 0, 9, 9], pa.float32()), 2)
    >>> IvfModel(centroids, "l2").save("memory://doc-lance-ivf/ivf.lance")
    >>> IvfModel.load("memory://doc-lance-ivf/ivf.lance").num_partitions
    2
    """

    centroids: pa.FixedSizeListArray
    distance_type: str

    @property
    def num_partitions(self) -> int:
        return len(self.centroids)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write the model to a data file."""
        _save(uri, "centroids", self.centroids, {"distance_type": self.distance_type}, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read a model written by :meth:`save`."""
        centroids, metadata = _load(uri, "centroids", storage_options)
        return cls(centroids, metadata["distance_type"])


@dataclass
class PqModel:
    """A product quantization codebook; its rows are as wide as a vector.

    It has the entries of each sub-vector in turn: 256, or 16 for codes of 4 bits.
    """

    num_subvectors: int
    codebook: pa.FixedSizeListArray
    num_bits: int = 8

    @property
    def dimension(self) -> int:
        return int(self.codebook.type.list_size)

    def save(self, uri: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        """Write the model to a data file."""
        metadata = {"num_subvectors": str(self.num_subvectors), "num_bits": str(self.num_bits)}
        _save(uri, "codebook", self.codebook, metadata, storage_options)

    @classmethod
    def load(cls, uri: str, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """Read a model written by :meth:`save`."""
        codebook, metadata = _load(uri, "codebook", storage_options)
        return cls(int(metadata["num_subvectors"]), codebook, int(metadata.get("num_bits", "8")))


def _save(
    uri: str, name: str, values: pa.Array, metadata: Mapping[str, str], options: Mapping[str, str] | None
) -> None:
    schema = pa.schema([pa.field(name, values.type)], metadata=dict(metadata))
    with LanceFileWriter(uri, schema, storage_options=options) as writer:
        writer.write_batch(pa.table([values], schema=schema))


def _load(uri: str, name: str, options: Mapping[str, str] | None) -> tuple[pa.FixedSizeListArray, dict[str, str]]:
    table = LanceFileReader(uri, storage_options=options).read_all().to_table()
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    return one_array(table.column(name)), metadata


class IndicesBuilder:
    """Train the models of a vector index before building it.

    Parameters
    ----------
    dataset: the dataset.
    column: the vector column.

    Raises ``UnknownColumnError`` and ``WrongTypeError``.

    >>> from trilake.lance import write_dataset
    >>> vectors = pa.FixedSizeListArray.from_arrays(pa.array(range(4096), pa.float32()), 4)
    >>> ds = write_dataset(pa.table({"v": vectors}), "memory://doc-lance-builder")
    >>> ivf = IndicesBuilder(ds, "v").train_ivf(2)
    >>> ivf.num_partitions, IndicesBuilder(ds, "v").train_pq(ivf, 2).dimension
    (2, 4)
    """

    def __init__(self, dataset: OpenDataset, column: str | Sequence[str]) -> None:
        self.dataset, self.column = dataset, dataset.snapshot.view.schema.spelled(vector_indices.only_column(column))
        self.dimension: int = vector_type(dataset.snapshot, self.column).list_size

    def train_ivf(
        self,
        num_partitions: int | None = None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        fragment_ids: Sequence[int] | None = None,
    ) -> IvfModel:
        """Train partition centroids.

        Parameters
        ----------
        num_partitions: number of centroids; by default the square root of the number of rows.
        distance_type: ``"l2"``, ``"cosine"`` or ``"dot"``.
        accelerator: accepted for compatibility.
        sample_rate: training rows per partition.
        max_iters: maximum number of k-means iterations.
        fragment_ids: fragments to sample, by default all.

        Raises ``InvalidArgumentError``.
        """
        del accelerator
        metric = metric_name(distance_type) or "l2"
        rows = self._rows(fragment_ids).count()
        partitions = round(math.sqrt(rows)) if num_partitions is None else count("num_partitions", num_partitions)
        if partitions < 1 or partitions > rows:
            raise InvalidArgumentError(
                f"num_partitions must be from 1 to {rows} (the number of rows), got {partitions}"
            )
        vectors = self._sample(partitions * _rate(sample_rate), fragment_ids)
        how: dict[str, Any] = {"metric": metric, "iterations": max_iters, "legacy": self._legacy}
        learned = ivf_pq.train_centroids(vectors, partitions, np.random.default_rng(0), **how)
        return IvfModel(pa.FixedSizeListArray.from_arrays(pa.array(learned.reshape(-1)), self.dimension), metric)

    def train_pq(
        self,
        ivf_model: IvfModel,
        num_subvectors: int | None = None,
        *,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: Sequence[int] | None = None,
    ) -> PqModel:
        """Train a product quantization codebook on residuals.

        Parameters
        ----------
        ivf_model: the centroids.
        num_subvectors: number of sub-vectors; by default each has 16 numbers, or 8.
        sample_rate: training rows per codebook entry.
        max_iters: maximum number of k-means iterations.
        num_bits: bits per code; 4 in datasets of 2.x with an even number of sub-vectors.
        fragment_ids: fragments to sample, by default all.

        Raises ``InvalidArgumentError``.
        """
        pieces = self._pieces(num_subvectors)
        vector_indices.check_bits(self.dataset.snapshot, pieces, num_bits)
        vectors = self._sample(_rate(sample_rate) << num_bits, fragment_ids)
        centroids = vectors_of(ivf_model.centroids, self.dimension)
        residuals = ivf_pq.sample_residuals(vectors, centroids, ivf_model.distance_type, legacy=self._legacy)
        words = ivf_pq.train_words(residuals, pieces, np.random.default_rng(0), iterations=max_iters, bits=num_bits)
        codebook = pa.FixedSizeListArray.from_arrays(pa.array(words.reshape(-1)), self.dimension)
        return PqModel(pieces, codebook, num_bits)

    def prepare_global_ivf_pq(
        self,
        num_partitions: int | None = None,
        num_subvectors: int | None = None,
        *,
        distance_type: str = "l2",
        accelerator: Any = None,
        sample_rate: int = 256,
        max_iters: int = 50,
        num_bits: int = 8,
        fragment_ids: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Train both models; returns ``ivf_centroids`` and ``pq_codebook`` for ``create_index``."""
        shared: dict[str, Any] = {"sample_rate": sample_rate, "max_iters": max_iters, "fragment_ids": fragment_ids}
        ivf = self.train_ivf(num_partitions, distance_type=distance_type, accelerator=accelerator, **shared)
        pq = self.train_pq(ivf, num_subvectors, num_bits=num_bits, **shared)
        return {"ivf_centroids": ivf.centroids, "pq_codebook": pq.codebook, "num_partitions": ivf.num_partitions}

    def transform_vectors(
        self,
        ivf: IvfModel,
        pq: PqModel,
        dest_uri: str,
        fragments: Sequence[LanceFragment] | None = None,
        partition_ds_uri: str | None = None,
    ) -> None:
        """Encode the vectors of some fragments, and write the codes to a data file.

        Parameters
        ----------
        ivf, pq: trained models.
        dest_uri: the file, with the columns ``_rowid``, ``__ivf_part_id`` and ``__pq_code``.
        fragments: fragments to encode, by default all.
        partition_ds_uri: accepted for compatibility.

        Raises ``InvalidArgumentError``.
        """
        del partition_ds_uri
        if fragments is not None and not len(fragments):
            raise InvalidArgumentError("fragments must be a non-empty list or None")
        rows = self._rows(None if fragments is None else [f.fragment_id for f in fragments])
        _write_codes(dest_uri, vector_indices.encoded(rows, self.column, self._model(ivf, pq)))

    def shuffle_transformed_vectors(
        self,
        unsorted_filenames: Sequence[str],
        dir_path: str,
        ivf: IvfModel,
        shuffle_output_root_filename: str | None = "sorted",
    ) -> list[str]:
        """Sort the codes of :meth:`transform_vectors` by partition, and return the names of the new files.

        Parameters
        ----------
        unsorted_filenames: names of the files.
        dir_path: folder of these files, and of the new ones.
        ivf: the centroids.
        shuffle_output_root_filename: beginning of the new names.
        """
        del ivf
        partitions, codes, ids = _read_codes(unsorted_filenames, dir_path)
        order = np.argsort(partitions, kind="stable")
        name = f"{shuffle_output_root_filename or 'sorted'}_0.lance"
        _write_codes(f"{dir_path}/{name}", (partitions[order], codes[order], ids[order]))
        return [name]

    def load_shuffled_vectors(
        self, filenames: Sequence[str], dir_path: str, ivf: IvfModel, pq: PqModel, index_name: str | None = None
    ) -> None:
        """Commit an index of the codes of :meth:`transform_vectors`, replacing an index of that name.

        Parameters
        ----------
        filenames: names of files with codes, sorted or not.
        dir_path: folder of the files.
        ivf, pq: the models that encoded the vectors.
        index_name: name of the index, by default derived from the column.

        The index covers the fragments that have codes.  Raises ``InvalidArgumentError`` for row ids that do not exist,
        and ``ConflictError`` if another commit has changed these rows.
        """
        snapshot, model = self.dataset.snapshot, self._model(ivf, pq)
        partitions, codes, ids = _read_codes(filenames, dir_path)
        of = indices.of_fragments(snapshot, np.unique(snapshot.addresses_of(ids) >> np.uint64(32)).tolist())
        name = index_name or indices.default_name(snapshot, self.column, None)
        rows = ivf_pq.by_partition(model, partitions, codes, ids)
        index = vector_indices.write_index(of, self.column, name, model, rows)
        self.dataset.moved(index_segments.commit(snapshot, name, self.column, [index]))

    @property
    def _legacy(self) -> bool:
        return self.dataset.snapshot.manifest.storage_version.is_legacy

    def _model(self, ivf: IvfModel, pq: PqModel) -> vector_indices.AnyModel:
        plan = vector_indices.plan_index(
            self.dataset.snapshot,
            self.column,
            metric=ivf.distance_type,
            num_sub_vectors=pq.num_subvectors,
            ivf_centroids=ivf.centroids,
            pq_codebook=pq.codebook,
            num_bits=pq.num_bits,
        )
        none = np.empty((0, self.dimension), np.float32)
        return vector_indices.learned(plan, none, np.random.default_rng(0), legacy=self._legacy)

    def _pieces(self, pieces: int | None) -> int:
        if pieces is None:
            size = next((size for size in (16, 8) if self.dimension % size == 0), None)
            if size is None:
                raise InvalidArgumentError(
                    f"num_subvectors is required for vectors of dimension {self.dimension}",
                    help="pass a divisor of the dimension",
                )
            return self.dimension // size
        ivf_pq.check("l2", self.dimension, count("num_subvectors", pieces, least=1))
        return pieces

    def _rows(self, fragment_ids: Sequence[int] | None) -> Snapshot:
        """Return the version restricted to some fragments, if any are named."""
        snapshot = self.dataset.snapshot
        return snapshot if fragment_ids is None else indices.of_fragments(snapshot, fragment_ids)

    def _sample(self, rows: int, fragment_ids: Sequence[int] | None) -> ivf_pq.Floats:
        """Sample vectors at evenly spread positions, except nulls and non-finite values."""
        snapshot = self._rows(fragment_ids)
        places = np.arange(snapshot.count())
        if rows < len(places):
            places = np.sort(np.random.default_rng(0).choice(places, rows, replace=False))
        taken = snapshot.take(places, snapshot.view.columns([self.column]))
        vectors, _ = vectors_and_rows(vector_leaf(one_array(taken.column(0))), self.dimension)
        return vectors[np.isfinite(vectors).all(axis=1)]


def _rate(sample_rate: int) -> int:
    if count("sample_rate", sample_rate, other_type=WrongTypeError) < 2:
        raise InvalidArgumentError(f"The sample_rate must be an int greater than 1, got {sample_rate}")
    return sample_rate


def _write_codes(uri: str, rows: vector_indices.Encoded) -> None:
    partitions, codes, ids = rows
    table = pa.table(
        {
            ROW_ID: pa.array(ids, pa.uint64()),
            "__ivf_part_id": pa.array(partitions, pa.uint32()),
            "__pq_code": _code_lists(codes),
        }
    )
    with LanceFileWriter(uri, table.schema) as writer:
        writer.write_batch(table)


def _code_lists(codes: ivf_pq.Codes) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1), pa.uint8()), codes.shape[1])


def _read_codes(names: Sequence[str], folder: str) -> vector_indices.Encoded:
    if isinstance(names, str) or not len(names):
        raise InvalidArgumentError("filenames must be a list of strings", help="pass the names of all files")
    table = pa.concat_tables([LanceFileReader(f"{folder}/{name}").read_all().to_table() for name in names])
    codes = one_array(table["__pq_code"])
    matrix = codes.flatten().to_numpy().reshape(-1, codes.type.list_size)
    return table["__ivf_part_id"].to_numpy().astype(np.int32), matrix, table[ROW_ID].to_numpy()


class VectorIndexReader:
    """Read the partitions of a vector index.

    Parameters
    ----------
    dataset: the dataset.
    index_name: name of the index.

    Raises ``UnknownIndexError``, and ``InvalidArgumentError`` for other kinds of index.
    """

    def __init__(self, dataset: OpenDataset, index_name: str) -> None:
        entry = indices.find(dataset.snapshot, index_name)
        opened: VectorIndex | None = dataset.snapshot.indices.vector(entry)
        if opened is None:
            raise InvalidArgumentError(
                f"Index {index_name} is not vector index", help="pass the name of an IVF_PQ index"
            )
        self.dataset, self.index_name, self._index = dataset, index_name, opened

    def num_partitions(self) -> int:
        """Return the number of partitions."""
        return len(self._index.model.centroids)

    def centroids(self) -> pa.FixedSizeListArray:
        """Return the centroids of the partitions."""
        return self._index.centroids

    def read_partition(self, partition_id: int, *, with_vector: bool = False) -> pa.Table:
        """Return the row ids of a partition; ``with_vector`` adds their codes.  Raises ``IndexError``."""
        if not 0 <= partition_id < self.num_partitions():
            raise IndexError(f"partition {partition_id} is out of range: the index has {self.num_partitions()}")
        codes, ids = self._index.partition(partition_id)
        columns: dict[str, Any] = {ROW_ID: pa.array(ids, pa.uint64())}
        if with_vector:
            columns["__pq_code"] = _code_lists(codes)
        return pa.table(columns)
