"""Dictionary values: a manifest file stores them for all data files of the dataset, encoded like a page.

For strings and binaries, the bytes come first, then their file positions; the position of the dictionary points to the
latter.  Numbers are stored as they are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trilake.errors import CorruptLogError, InvalidArgumentError, SchemaMismatchError, TrilakeError
from trilake.lance.file import types
from trilake.lance.file.schema import DictionaryLocation, Field, LanceSchema
from trilake.lance.file.sources import MappedSource, Source
from trilake.lance.v1.decode import Decoder
from trilake.lance.v1.encode import encode_flat
from trilake.lance.v1.pages import PageTable, layout_of


def decode_dictionaries(schema: LanceSchema, data: pa.Buffer, *, file: str) -> dict[int, pa.Array]:
    """Decode the dictionaries of a manifest, by field id.  Raises ``CorruptLogError`` if they are damaged."""
    try:
        return read_dictionaries(schema, MappedSource(file, data))
    except TrilakeError as e:
        raise CorruptLogError(e.message, help=e.help, **e.context) from e


def read_dictionaries(schema: LanceSchema, source: Source) -> dict[int, pa.Array]:
    """Read the dictionaries of a data file, by field id.  Raises ``CorruptFileError``."""
    dictionaries = {}
    claimed = 0
    for field in schema.walk():
        if field.is_dictionary and field.dictionary is not None:
            offset, length = field.dictionary
            values = value_field(field)
            decoder = Decoder(source, PageTable(field.id, np.array([[[offset, length]]], np.int64)), {})
            decoder.check(values)
            # Overlapping dictionaries of a small file could exhaust the memory.
            claimed += layout_of(values).page_bytes(length)
            if claimed > source.size:
                raise decoder.fail(f"the dictionaries take more than the file's {source.size} bytes", field, None)
            dictionaries[field.id] = decoder.column(values, 0, 0, length, None)
    return dictionaries


def value_field(field: Field) -> Field:
    """Build a field for the values of a dictionary field."""
    name = types.logical_type(field.arrow_type.value_type)
    # An empty string is a value, not a null.
    return Field(field.name, field.id, field.parent_id, name, nullable=False)


def encode_dictionaries(schema: LanceSchema, position: int = 0) -> tuple[bytearray, dict[int, DictionaryLocation]]:
    """Encode a schema's dictionaries, to be written at ``position``; return them and their positions by field id."""
    out = bytearray()
    places = {}
    for field in schema.walk():
        values = schema.dictionaries.get(field.id)
        if field.is_dictionary and values is not None:
            parts, offset = encode_flat(value_field(field), values, position + len(out))
            places[field.id] = DictionaryLocation(offset, len(values))
            for part in parts:
                out += part
    return out, places


class DictionaryUnifier:
    """One dictionary for all batches of a column; with ``extend``, new values are appended.  Keys stay the same."""

    def __init__(self, field: Field, values: pa.Array | None = None, *, extend: bool = True) -> None:
        self._field = field
        self._extend = extend
        self.values = pa.array([], field.arrow_type.value_type) if values is None else values
        self._last_values: pa.Array | None = None
        self._mapping: pa.Array | None = None

    def keys(self, array: pa.DictionaryArray) -> pa.Array:
        """Map the keys of a batch to the common dictionary; nulls stay nulls."""
        if array.dictionary.null_count:
            dense = array.cast(array.type.value_type).dictionary_encode()  # moves the nulls to the keys
            array = pa.DictionaryArray.from_arrays(dense.indices.cast(array.type.index_type), dense.dictionary)
        values = array.dictionary
        if self._last_values is not None and (values is self._last_values or values.equals(self._last_values)):
            mapping = self._mapping
        else:
            mapping = self._map(values)
            self._last_values, self._mapping = values, mapping
        if mapping is None:
            return array.indices
        return mapping.take(array.indices.cast(pa.int64(), safe=False))

    def _map(self, values: pa.Array) -> pa.Array | None:
        """Map each value of a batch to its common key; ``None`` if the keys are the same."""
        if values.equals(self.values.slice(0, len(values))):
            return None
        if not len(self.values) and len(values) == len(pc.unique(values)):
            self._grow(values)
            return None
        at = pc.index_in(values, self.values)
        if at.null_count:
            self._grow(pc.unique(values.filter(pc.is_null(at))))
            at = pc.index_in(values, self.values)
        return at.cast(self._field.arrow_type.index_type)

    def _grow(self, new: pa.Array) -> None:
        if not self._extend:
            raise SchemaMismatchError(
                f"the dictionary lacks values of the column, e.g. {new[0]}",
                help="cast the column to the type of its values, or write all rows at once",
                column=self._field.name,
            )
        index = self._field.arrow_type.index_type
        most = 2 ** (index.bit_width - (1 if str(index).startswith("int") else 0))
        if len(self.values) + len(new) > most:
            raise InvalidArgumentError(
                f"the column has more than {most} distinct values, more than {index} keys can number",
                help="use a wider type of dictionary keys",
                column=self._field.name,
            )
        self.values = pa.concat_arrays([self.values, new])
