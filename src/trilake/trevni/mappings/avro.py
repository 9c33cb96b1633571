"""Avro records in Trevni files, in the layout of the reference (spec: "Type Mappings", "Avro").

Columns follow from a depth-first walk of the schema.  Their names are paths: ``#`` before the field of a record, ``[]``
after an array, ``>`` after a map with its children ``key`` and ``value``, ``/`` before the branch of a union.  An array
of a simple type is one array column; other arrays are null array columns with children.  Each branch of a union, except
null, is an array column of lengths 0 and 1.  Enums are ints, fixed values are bytes.  Recursive schemas raise
``InvalidArgumentError``.  The file's metadata has the schema, under :data:`SCHEMA_KEY`.

Records are those of fastavro: dictionaries, with ``(branch name, value)`` for an ambiguous value of a union, and Python
classes for logical types.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from trilake.errors import CorruptFileError, InvalidArgumentError, SchemaMismatchError
from trilake.storage import Store
from trilake.trevni.blocks.encode import BLOCK_SIZE
from trilake.trevni.blocks.layout import ColumnDescriptor
from trilake.trevni.file.file import TrevniFile
from trilake.trevni.mappings.avro_resolution import AvroRecords, schema_of_columns
from trilake.trevni.mappings.avro_schema import AvroSchema, SchemaLike

#: File metadata: the schema of the records, as JSON.
SCHEMA_KEY = "avro.schema"

# --- files -----------------------------------------------------------------------------------------------------------


def columns(schema: SchemaLike) -> list[ColumnDescriptor]:
    """The columns of records of a schema.

    >>> [c.name for c in columns({"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", "int"]}]})]
    ['u/int']
    """
    return AvroRecords(AvroSchema(schema)).descriptors()


def write_avro(
    records: Iterable[Any],
    schema: SchemaLike,
    path: str | os.PathLike[str] | tuple[Store, str] | IO[bytes],
    *,
    codec: str | None = None,
    checksum: str | None = None,
    metadata: Mapping[str, bytes | str] | None = None,
    block_size: int = BLOCK_SIZE,
    named: bool = False,
) -> int:
    """Write Avro records to a Trevni file; return their number.

    Parameters
    ----------
    records: values of the schema, as for fastavro.
    schema: any Avro schema that is not recursive, parsed or as JSON.
    named: values of unions with several branches are ``(name, {"v": value})`` for branches of a simple type, with the
        names of :func:`trilake.trevni.mappings.avro_schema.with_named_branches`.

    The other parameters are those of :class:`trilake.trevni.TrevniWriter`.

    Raises ``InvalidArgumentError`` for a schema that cannot be stored and ``SchemaMismatchError`` for records of
    another schema.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> write_avro([["a", "b"], []], {"type": "array", "items": "string"}, file)
    2
    >>> list(read_avro(file.getvalue()))
    [['a', 'b'], []]
    """
    parsed = AvroSchema(schema)
    return AvroRecords(parsed, named=named).write(
        records,
        path,
        codec=codec,
        checksum=checksum,
        metadata={**(metadata or {}), SCHEMA_KEY: parsed.as_json()},
        block_size=block_size,
    )


def read_schema(file: TrevniFile) -> AvroSchema:
    """The schema of a file's records.  Raises ``SchemaMismatchError`` for a file without one."""
    if SCHEMA_KEY not in file.metadata:
        raise SchemaMismatchError(
            f"the file has no {SCHEMA_KEY} in its metadata", help="pass the schema of its records", file=file.uri
        )
    try:
        return AvroSchema(file.metadata[SCHEMA_KEY].decode())
    except (UnicodeDecodeError, InvalidArgumentError) as e:
        raise CorruptFileError(f"the Avro schema in the file cannot be read: {e}", file=file.uri) from e


def read_avro(file: TrevniFile | Any, schema: SchemaLike | None = None, *, tagged: bool = False) -> Iterator[Any]:
    """Iterate over the Avro records of a file.

    Parameters
    ----------
    file: an open file, or anything that :class:`trilake.trevni.TrevniFile` opens.
    schema: the reader's schema, by default that of the file.  Records are resolved as Avro specifies: only the columns
        of its fields are read, fields that the file lacks take their defaults, types may be wider or in a union, enums
        may have other symbols, and fields other names by aliases.
    tagged: read values of unions as pairs of the branch's name and the value.

    Raises ``SchemaMismatchError`` where the file or a value does not fit the schema, and ``CorruptFileError``.

    >>> from io import BytesIO
    >>> fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]
    >>> file = BytesIO()
    >>> _ = write_avro([{"a": 1, "b": "x"}], {"type": "record", "name": "r", "fields": fields}, file)
    >>> list(read_avro(file.getvalue(), {"type": "record", "name": "r", "fields": fields[:1]}))
    [{'a': 1}]
    """
    opened = file if isinstance(file, TrevniFile) else TrevniFile(file)
    requested = read_schema(opened) if schema is None else AvroSchema(schema)
    stored = read_schema(opened) if SCHEMA_KEY in opened.metadata else schema_of_columns(requested, opened)
    return AvroRecords(requested, stored, opened, tagged=tagged).read()
