"""Print manifests for debugging."""

from __future__ import annotations

from trilake.lance.commands.open_dataset import OpenDataset
from trilake.lance.file.schema import Field
from trilake.lance.pylance.commits import newest_transactions
from trilake.lance.versions.fragment_metadata import FragmentMetadata
from trilake.lance.versions.manifest import Fragment

__all__ = ["format_fragment", "format_manifest", "format_schema", "list_transactions"]


def format_fragment(fragment: FragmentMetadata, dataset: OpenDataset) -> str:
    """Describe a fragment: data files with fields, columns and version, deletion file and rows.

    >>> import pyarrow as pa
    >>> from trilake.lance import write_dataset
    >>> ds = write_dataset(pa.table({"a": [1]}), "memory://doc-lance-debug", data_storage_version="2.2")
    >>> print(format_fragment(ds.get_fragments()[0].metadata, ds))  # doctest: +ELLIPSIS
    fragment 0: physical_rows: 1
      data file ....lance: file_major_version: 2, file_minor_version: 2, base_id: None
        a: field 0, column 0
    """
    entry = getattr(fragment, "metadata", fragment).entry
    return "\n".join(_fragment(entry, dataset))


def _fragment(entry: Fragment, dataset: OpenDataset) -> list[str]:
    schema = dataset.snapshot.manifest.schema
    names = {f.id: schema.name_of(f) for f in schema.walk()}
    lines = [f"fragment {entry.id}: physical_rows: {entry.physical_rows}"]
    for file in entry.files:
        version = f"file_major_version: {file.major_version}, file_minor_version: {file.minor_version}"
        lines.append(f"  data file {file.path}: {version}, base_id: {file.base_id}")
        places = file.column_indices or [None] * len(file.fields)
        lines += [f"    {names.get(f)}: field {f}, column {c}" for f, c in zip(file.fields, places, strict=True)]
    if entry.deletion_file is not None:
        file_name = entry.deletion_file.key(entry.id)
        lines.append(f"  deletion file {file_name}: num_deleted_rows: {entry.deletion_file.num_deleted_rows}")
    return lines


def format_schema(dataset: OpenDataset) -> str:
    """Describe the fields of a dataset with ids and types; nested fields are indented."""
    return "\n".join(line for field in dataset.snapshot.manifest.schema.fields for line in _field(field, 0))


def _field(field: Field, depth: int) -> list[str]:
    line = f"{'  ' * depth}{field.id}: {field.name}: {field.logical_type}{'' if field.nullable else ' not null'}"
    return [line, *(each for child in field.children for each in _field(child, depth + 1))]


def format_manifest(dataset: OpenDataset) -> str:
    """Describe a manifest: version, flags, schema, fragments and indices."""
    m = dataset.snapshot.manifest
    head = [
        f"version: {m.version}",
        f"data_storage_version: {m.storage_version}",
        f"reader_feature_flags: {m.reader_feature_flags}",
        f"writer_feature_flags: {m.writer_feature_flags}",
        f"config: {dict(m.config)}",
    ]
    indices = [f"index {i.name}: fields {list(i.fields)}, uuid {i.uuid}" for i in m.indices]
    fragments = [line for entry in m.fragments for line in _fragment(entry, dataset)]
    return "\n".join([*head, format_schema(dataset), *fragments, *indices])


def list_transactions(dataset: OpenDataset, max_transactions: int = 10) -> list[str | None]:
    """Describe the newest transactions, newest first; ``None`` if the file of a transaction is gone."""
    newest = newest_transactions(dataset.snapshot, max_transactions)
    return [None if one is None else repr(one) for one in newest]
