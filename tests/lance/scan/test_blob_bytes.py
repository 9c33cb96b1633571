from pathlib import Path

import pyarrow as pa
import pytest

from trilake.errors import CorruptLogError
from trilake.lance.file.types import DESCRIPTION_V2, EXTERNAL
from trilake.lance.scan import blob_bytes
from trilake.lance.versions.bases import Bases
from trilake.lance.versions.manifest import BasePath
from trilake.storage import open_store


def test_blobs_below_a_base_are_read(tmp_path: Path) -> None:
    """Pylance stores the id of the base, and the path below it."""
    (tmp_path / "base" / "sub").mkdir(parents=True)
    (tmp_path / "base" / "sub" / "file").write_bytes(b"0123456789")
    store = open_store(tmp_path / "t")
    bases = Bases(store, [BasePath(7, (tmp_path / "base").as_uri())])
    rows = [(EXTERNAL, 0, 0, 7, "sub/file"), (EXTERNAL, 2, 3, 7, "sub/file"), (EXTERNAL, 0, 0, 8, "sub/file")]
    names = DESCRIPTION_V2.names
    descriptions = pa.array([dict(zip(names, row, strict=True)) for row in rows], DESCRIPTION_V2)
    place = store, "data/x.lance", bases
    assert blob_bytes.read(place, descriptions.slice(0, 2)).to_pylist() == [b"0123456789", b"234"]
    with pytest.raises(CorruptLogError, match="base path 8"):
        blob_bytes.read(place, descriptions)
