"""Invalid UTF-8 in a string column, as created by Spark's ``CAST(x AS STRING)``: rejected by formats
whose readers do not accept it, before an unreadable file is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import trilake
from trilake.errors import SchemaMismatchError


def _strings(*values: bytes) -> pa.Array:
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


_LONE = _strings(b"a", b"\xed\xa0\x80", b"z")
_CUT = _strings(b"a\xc3", b"\xa9", b"z")
_PLACES: dict[str, Callable[[pa.Array], pa.Array]] = {
    "column": lambda texts: texts,
    "list": lambda texts: pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts),
    "struct": lambda texts: pa.StructArray.from_arrays([texts], ["x"]),
    "dictionary": lambda texts: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), texts),
    "map": lambda texts: pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["a", "b", "c"]), texts),
}


@pytest.mark.parametrize("texts", [_LONE, _CUT], ids=["surrogate", "cut"])
@pytest.mark.parametrize(
    ("format", "place"), [(f, p) for f in ("lance", "trevni") for p in _PLACES if (f, p) != ("lance", "map")]
)
def test_invalid_utf8_is_rejected_before_writing(tmp_path: Path, format: str, place: str, texts: pa.Array) -> None:
    rows = pa.table({"v": _PLACES[place](texts)})
    with pytest.raises(SchemaMismatchError, match="a string is not UTF-8") as caught:
        trilake.write(rows, str(tmp_path / "t"), format=format)
    assert caught.value.context["column"]
    assert not list(tmp_path.rglob("*.trv")) + list(tmp_path.rglob("*.manifest"))


@pytest.mark.parametrize("format", ["lance", "trevni"])
def test_bytes_outside_of_a_slice_do_not_matter(tmp_path: Path, format: str) -> None:
    trilake.write(pa.table({"v": _LONE.slice(2)}), str(tmp_path / "t"), format=format)
    assert trilake.open(str(tmp_path / "t")).to_arrow()["v"].to_pylist() == ["z"]
