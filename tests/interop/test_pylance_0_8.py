"""Pylance 0.8.19, in its own environment, and this library: each reads what the other wrote, and goes on with it.

``make interop`` makes that environment and names its Python in ``TRILAKE_PYLANCE_0_8``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

from tests.interop import dialogue
from trilake import lance as ours
from trilake.lance.versions import list_versions
from trilake.storage import open_store

PYTHON = os.environ.get("TRILAKE_PYLANCE_0_8", "")
pytestmark = pytest.mark.skipif(not PYTHON, reason="make interop runs these: they need pylance 0.8.19")

#: What the other Python runs: a step of the dialogue, or a dump of versions.
DRIVER = """
import sys, lance, pyarrow as pa
sys.path.insert(0, sys.argv[1])
import dialogue
what, uri = sys.argv[2], sys.argv[3]
if what == "write":
    dialogue.write(lance, uri, dictionary=sys.argv[4] == "True")
elif what == "dump":
    for version in sys.argv[5:]:
        table = dialogue.state(lance, uri, int(version))
        with pa.ipc.new_file(sys.argv[4] + version, table.schema) as out:
            out.write_table(table)
else:
    dialogue.STEPS[what](lance, uri)
"""


def theirs(*arguments: str) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([PYTHON, "-c", DRIVER, here, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def agree(uri: str, tmp_path: Path) -> None:
    versions = list_versions(open_store(uri)).versions
    prefix = str(tmp_path / "dump-")
    theirs("dump", uri, prefix, *map(str, versions))
    for version in versions:
        with pa.memory_map(f"{prefix}{version}") as file:
            expected = pa.ipc.open_file(file).read_all()
        found = dialogue.state(ours, uri, version)
        assert found.schema.equals(expected.schema), version
        assert found.to_pydict() == expected.to_pydict(), version


def step(who: str, name: str, uri: str) -> None:
    if who == "trilake":
        dialogue.STEPS[name](ours, uri)
    else:
        theirs(name, uri)


@pytest.mark.parametrize("dictionary", [True, False])
@pytest.mark.parametrize("author", ["trilake", "pylance"])
def test_a_dialogue(author: str, dictionary: bool, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    if author == "trilake":
        dialogue.write(ours, uri, dictionary=dictionary)
    else:
        theirs("write", uri, str(dictionary))
    other = {"trilake": "pylance", "pylance": "trilake"}
    who = other[author]
    for name in dialogue.STEPS:
        if not (dictionary and name == "restore" and who == "pylance"):  # which it cannot do with dictionaries
            step(who, name, uri)
        who = other[who]
        step(who, "append", uri)
    agree(uri, tmp_path)


@pytest.mark.parametrize("name", dialogue.STEPS)
@pytest.mark.parametrize("actor", ["trilake", "pylance"])
def test_each_step(actor: str, name: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dictionary = name != "restore"
    if actor == "pylance":
        dialogue.write(ours, uri, dictionary=dictionary)
    else:
        theirs("write", uri, str(dictionary))
    step(actor, name, uri)
    agree(uri, tmp_path)


def test_columns_without_a_gap_in_ids_are_what_it_can_read(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    dialogue.write(ours, uri)
    ours.dataset(uri).drop_columns(["x", "tags"])
    ours.write_dataset(ours.dataset(uri).to_table(limit=50), uri, mode="append")
    ours.dataset(uri).add_columns({"y": "id * 2"})
    ours.dataset(uri).alter_columns({"path": "y", "name": "z"})
    ours.dataset(uri).optimize.compact_files()
    agree(uri, tmp_path)
