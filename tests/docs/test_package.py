"""The packages can be published: their contents and their metadata."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT


@pytest.fixture(scope="module")
def dist() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("scripts_dist", str(ROOT / "scripts" / "dist"))
    spec = importlib.util.spec_from_loader("scripts_dist", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_packages_contain_exactly_the_required_files(
    dist: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, source = dist.build(tmp_path)
    dist.check_wheel(wheel)
    dist.check_source(source)
    output = capsys.readouterr().out
    assert "NO " not in output
    for promise in "metadata are valid", "NOTICE and LICENSE", "delta-spark's names", "every module":
        assert promise in output


def test_readme_with_repository_links_is_rejected(dist: ModuleType) -> None:
    metadata = """Metadata-Version: 2.4
Name: trilake
Version: 1
Author: a
Summary: s
Keywords: k
Project-URL: A, https://a.example
Project-URL: B, https://b.example
Project-URL: C, https://c.example
License-Expression: Apache-2.0
License-File: LICENSE
License-File: NOTICE
Description-Content-Type: text/markdown

# trilake

    pip install trilake

[docs](docs/index.md)
"""
    with pytest.raises(SystemExit, match="cannot be published"):
        dist.check_metadata(metadata)
    dist.check_metadata(metadata.replace("docs/index.md", "https://trilake.example/docs"))
