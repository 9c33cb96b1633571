"""Do the folders of data files spell their partition values, so that Spark may infer them?

Only where inference certainly gives the logged values: the folders below the table are exactly the partition columns in
order, and the text of each is one that Spark reads as the value, whatever the zone of its session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from trilake.delta.partitions import HIVE_NULL
from trilake.storage import split_absolute

_CANONICAL_INT = re.compile(r"0|-?[1-9]\d*")
_CANONICAL_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def follows_hive(root: str, paths: pa.ChunkedArray, values: Mapping[str, pa.ChunkedArray]) -> bool:
    """Whether Spark's partition inference gives ``values`` for all ``paths`` (absolute, decoded) below ``root``."""
    base = "/" + split_absolute(root)[1] + "/"
    if "=" in base.rstrip("/").rpartition("/")[2]:
        return False  # Spark would take the table's own folder for a partition
    if not pc.all(pc.starts_with(paths, base)).as_py():
        return False
    names = list(values)
    folders = pc.replace_substring_regex(pc.utf8_slice_codeunits(paths, len(base)), r"/?[^/]*$", "").combine_chunks()
    encoded = pc.dictionary_encode(folders)
    split = [_split(folder, names) for folder in encoded.dictionary.to_pylist()]
    if None in split:
        return False
    for i, name in enumerate(names):
        typed = values[name].combine_chunks()
        spelled = _typed([s[i] for s in split if s is not None], typed.type)
        if spelled is None or not _same(spelled.take(encoded.indices), typed):
            return False
    return True


def _split(folder: str, names: list[str]) -> list[str | None] | None:
    """The values in ``a=1/b=2``, unescaped; ``None`` for any other folder."""
    parts = folder.split("/")
    if len(parts) != len(names):
        return None
    out: list[str | None] = []
    for part, name in zip(parts, names, strict=True):
        key, mark, text = part.partition("=")
        if not mark or unquote(key) != name or not text:
            return None
        out.append(None if text == HIVE_NULL else unquote(text, errors="strict"))
    return out


def _typed(texts: list[str | None], type_: pa.DataType) -> pa.Array | None:
    """Texts as values where Spark certainly reads them so; ``None`` where it may not."""
    if pa.types.is_string(type_):
        return pa.array(texts, type_)
    pattern = _CANONICAL_INT if pa.types.is_integer(type_) else _CANONICAL_DATE if pa.types.is_date(type_) else None
    if pattern is None or any(t is not None and not pattern.fullmatch(t) for t in texts):
        return None
    try:
        return pa.array(texts, pa.string()).cast(type_)
    except pa.ArrowInvalid:
        return None


def _same(left: pa.Array, right: pa.Array) -> bool:
    equal = pc.or_kleene(pc.equal(left, right), pc.and_(pc.is_null(left), pc.is_null(right)))
    return bool(pc.all(pc.fill_null(equal, False)).as_py())
