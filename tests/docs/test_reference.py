"""The reference lists exactly what the code has."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_pages"] = module
    spec.loader.exec_module(module)
    return module


def test_every_error_code_has_a_cause_and_a_remedy(site: ModuleType) -> None:
    codes = site.error_classes()
    assert set(codes) == set(site.WORDS["errors"])
    assert [code for code, classes in codes.items() if not classes[0].__doc__] == []


def test_every_table_property_is_explained(site: ModuleType) -> None:
    from trilake.delta.protocol.properties import known_properties

    assert set(known_properties()) == set(site.WORDS["properties"])


def test_every_option_is_explained(site: ModuleType) -> None:
    named = {name for names in site.option_lists().values() for name in names}
    assert named == set(site.WORDS["options"])


def test_generated_pages_have_a_row_for_each_name(site: ModuleType) -> None:
    assert "| `CONFLICT` |" in site.errors()
    assert "| `delta.checkpointInterval` | `10` | an integer >= 1 |" in site.properties()
    assert "| `replaceWhere` |" in site.options()
