"""The repository itself: setup, lock file, contracts, documents and the rules for every file."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import trilake
from tests.house.trees import parsed

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
#: Directories with generated or third-party files.
IGNORED = {
    ".git",
    ".venv",
    ".venv-interop",
    ".venv-interop-duckdb",
    ".venv-matrix",
    "__pycache__",
    "bench-data",
    "demo-data",
    "spark-warehouse",
    "metastore_db",
    "build",
    "dist",
}


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_files() -> list[Path]:
    """All text files of the repository."""
    suffixes = {".py", ".md", ".toml", ".properties", ".lock", ""}
    result = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in IGNORED and not f.endswith(("_cache", ".egg-info"))]
        folders[:] = [f for f in folders if f != ".hypothesis"]
        result += [Path(folder, f) for f in files if Path(f).suffix in suffixes and f not in IGNORED]
    return sorted(result)


# --- lock file -------------------------------------------------------------------------------------------------------


#: The extra of this name adds 5 GB to the Lance libraries; neither the lock nor ``all`` includes it.
TORCH = "torch"


def direct_requirements() -> list[Requirement]:
    """All requirements in pyproject.toml, including development, except torch."""
    listed = list(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        listed += extra
    for group in PROJECT["dependency-groups"].values():
        listed += [entry for entry in group if isinstance(entry, str)]
    requirements = [Requirement(text) for text in [*listed, *PROJECT["build-system"]["requires"]]]
    return [r for r in requirements if r.name != TORCH]


def test_extra_all_is_every_extra_except_torch() -> None:
    extras = {name: set(listed) for name, listed in PROJECT["project"]["optional-dependencies"].items()}
    whole = extras.pop("all")
    [torch] = extras.pop(TORCH) - extras["lance"]
    assert Requirement(torch).name == TORCH
    assert whole == set().union(*extras.values())
    assert TORCH not in locked()


@cache
def locked() -> dict[str, list[str]]:
    """The locked versions by package; several where platforms differ."""
    versions: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            requirement = Requirement(line.removesuffix("\\"))
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            versions.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    return versions


@pytest.mark.parametrize("requirement", direct_requirements(), ids=str)
def test_lock_satisfies_requirement(requirement: Requirement) -> None:
    versions = locked()[canonicalize_name(requirement.name)]
    assert all(requirement.specifier.contains(v, prereleases=True) for v in versions)


def test_locked_packages_have_hashes_and_no_urls() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[^ #])", text)
    assert len(entries) > 50
    assert [e for e in entries if "--hash=sha256:" not in e] == []
    assert "://" not in text


def test_environment_matches_the_lock_file() -> None:
    """Tests with other versions say nothing about the lock file."""
    import importlib.metadata

    environment = default_environment()
    assert environment["python_version"] in ("3.11", "3.12", "3.13")
    for name in "pyarrow", "pyspark", "duckdb", "obstore", "deltalake":
        assert importlib.metadata.version(name) in locked()[name]


# --- set-up ----------------------------------------------------------------------------------------------------------


def fake_python(folder: Path, name: str, *, version: str = "3.11", venv: bool = True) -> None:
    """A program that answers scripts/venv like a given Python version, but creates no environment."""
    supported = version in ("3.11", "3.12", "3.13")
    script = folder / name
    script.write_text(
        f"""#!/bin/sh
case "$*" in
    *"not (3, 11)"*) exit {0 if supported else 1};;
    *ensurepip*) exit {0 if venv else 1};;
    *%d-venv*) echo python{version}-venv;;
    *--version*) echo Python {version}.0;;
    *) echo "{name} $*"; exit 9;;
esac
"""
    )
    script.chmod(0o755)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with the files scripts/venv needs, and the programs it may call in ``bin``, but no Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "venv", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    (tmp_path / "bin").mkdir()
    for program in "dirname", "awk", "grep", "cat":
        result = shutil.which(program)
        assert result
        (tmp_path / "bin" / program).symlink_to(result)
    user = tmp_path / "bin" / "id"
    user.write_text("#!/bin/sh\necho 1000\n")
    user.chmod(0o755)
    return tmp_path


def run_setup(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", checkout / "scripts" / "venv"],
        env={"PATH": str(checkout / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_setup_picks_the_newest_working_python(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3.13", version="3.13", venv=False)
    fake_python(checkout / "bin", "python3.12", version="3.12")
    fake_python(checkout / "bin", "python3.11", version="3.11")
    done = run_setup(checkout)
    assert done.returncode == 9  # the fake cannot go on from here
    assert done.stdout == "python3.12 -m venv --clear .venv\n"
    assert run_setup(checkout, PYTHON="python3.11").stdout == "python3.11 -m venv --clear .venv\n"


def test_setup_without_python_prints_the_install_command(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3", version="3.9")
    done = run_setup(checkout)
    assert done.returncode == 1
    assert "trilake needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert "Type:  apt-get install python3 python3-venv" in done.stderr


def test_setup_without_venv_prints_the_install_command(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3.9", version="3.9")
    fake_python(checkout / "bin", "python3", version="3.12", venv=False)
    done = run_setup(checkout)
    assert done.returncode == 1
    assert "Type:  sudo apt-get install python3.12-venv" in done.stderr


def test_setup_as_root_installs_the_venv_package(checkout: Path) -> None:
    programs = checkout / "bin"
    fake_python(programs, "python3.12", version="3.12", venv=False)
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    (programs / "apt-get").write_text(
        f"""#!/bin/sh
echo "$@" >>{checkout}/apt-get.log
sed -i 's/ensurepip.*/ensurepip*) exit 0;;/' {programs}/python3.12
"""
    )
    (programs / "apt-get").chmod(0o755)
    (programs / "sed").symlink_to(shutil.which("sed") or "")
    assert run_setup(checkout).stdout == "python3.12 -m venv --clear .venv\n"
    assert "install -y -qq python3.12-venv" in (checkout / "apt-get.log").read_text()


def make(*arguments: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    listed = re.findall(r"^  make (\w+) +\S", make("help"), re.MULTILINE)
    assert sorted(listed) == sorted(phony.split())
    assert make() == make("help")


def test_make_targets_using_python_depend_on_the_environment() -> None:
    rule = r"^(\w+):([^#\n]*)##[^\n]*\n(?:\t[^\n]*\n)*?\t[^\n]*\$\((?:PY|VENV)\)"
    uses_python = re.findall(rule, (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(uses_python) > 5
    without = [name for name, needs in uses_python if "$(LOCKED)" not in needs]
    assert without == ["clean"]


def test_ci_runs_tests_first_then_every_check() -> None:
    steps = re.findall(r"^ *step (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps == ["test", "long", "types", "docs", "lint", "contracts", "doctest"]
    assert make("-n", "check").strip() == ".ci/run"
    for script in ".ci/run", "scripts/venv", "scripts/lock":
        assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("failing", ["test", "types", "lint", "docs"])
def test_failing_ci_step_does_not_stop_other_steps(tmp_path: Path, failing: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    names = ["test", "long", "lint", "types", "contracts", "doctest", "docs"]
    rules = "\n".join(f"{n}:\n\t@{'false' if n == failing else 'echo did ' + n}" for n in names)
    (tmp_path / "Makefile").write_text(rules + "\n")
    done = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert sorted(re.findall(r"^did (\w+)", done.stdout, re.MULTILINE)) == sorted({*names} - {failing})
    results = re.findall(r"^(\w+) +(passed|FAILED) in +\d+ s$", done.stdout, re.MULTILINE)
    assert results[0][0] == "test"
    assert sorted(results) == [(n, "FAILED" if n == failing else "passed") for n in sorted(names)]


# --- rules for every file --------------------------------------------------------------------------------------------


def test_no_function_raises_not_implemented() -> None:
    """Errors may inherit from NotImplementedError; nothing may raise it directly."""

    def stub(path: Path) -> bool:
        nodes = list(ast.walk(parsed(path)))
        bases = {base for n in nodes if isinstance(n, ast.ClassDef) for base in n.bases}
        return "NotImplementedError" in {n.id for n in nodes if isinstance(n, ast.Name) and n not in bases}

    assert [ids(p) for p in SOURCES if stub(p)] == []


def test_no_source_file_imports_unittest() -> None:
    imports = {p: [n for n in ast.walk(parsed(p)) if isinstance(n, ast.Import)] for p in SOURCES}
    assert [ids(p) for p, result in imports.items() if "unittest" in {a.name for n in result for a in n.names}] == []


def test_every_folder_is_a_package() -> None:
    """A folder without ``__init__.py`` can be imported, but the contracts do not see it."""
    folders = {p.parent for p in SOURCES} - {ROOT / "src"}
    assert [ids(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


PACKAGE = ROOT / "src" / "trilake"


def names_of_the_package(tree: ast.Module) -> set[str]:
    """The names a module takes from the package ``trilake`` itself, without submodules."""
    taken: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "trilake":
            taken |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trilake":
            taken.add(node.attr)
    return {n for n in taken if not ((PACKAGE / f"{n}.py").exists() or (PACKAGE / n).is_dir())}


def test_names_of_the_package_finds_imports_and_attributes() -> None:
    tree = ast.parse(
        "import trilake\nfrom trilake import errors, read\ndef f():\n    trilake.open(trilake.table.table)"
    )
    assert names_of_the_package(tree) == {"open", "read"}


def test_no_module_imports_the_public_api() -> None:
    """``trilake.open`` inside the package would import a layer to the right without breaking a contract."""
    inside = [p for p in SOURCES if p != PACKAGE / "__init__.py"]
    assert [ids(p) for p in inside if not names_of_the_package(parsed(p)) <= {"__version__"}] == []


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports: at the top, inside functions, and for type checkers."""
    result: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            result |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{a.name}" for a in node.names}
            result |= {name if name in modules else node.module for name in whole}
    return result & modules


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that are part of import cycles: what remains after removing modules without importers or imports."""
    left = dict(graph)
    while True:
        reached = set().union(*(left[m] & left.keys() for m in left)) if left else set()
        ends = {m for m in left if not left[m] & left.keys() or m not in reached}
        if not ends:
            return [sorted(left)] if left else []
        left = {m: targets for m, targets in left.items() if m not in ends}


def test_import_cycles_are_detected() -> None:
    assert import_cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert import_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_package_has_no_import_cycle() -> None:
    """Neither at the top of a module, nor inside functions, nor for type checkers."""
    names = {p: ".".join(p.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for p in SOURCES}
    modules = set(names.values()) - {"trilake"}  # the public API names everything
    graph = {name: imports_of(p, modules) - {name} for p, name in names.items() if name in modules}
    assert import_cycles(graph) == []


#: Modules that may use the system runtime: engines, and functions that open a table or dataset without one.
ENTRY_POINTS = {
    "src/trilake/delta/engine.py",
    "src/trilake/delta/standard.py",
    "src/trilake/lance/commit.py",
    "src/trilake/lance/format.py",
    "src/trilake/lance/fragment.py",
    "src/trilake/lance/table.py",
    "src/trilake/tools/convert/run.py",
    "src/trilake/trevni/format.py",
    "src/trilake/trevni/tables/row_groups.py",
    "src/trilake/trevni/tables/table_write.py",
}

#: Other modules that use the system clock or randomness, and why no runtime is passed in.
OUTSIDE = {
    "src/trilake/storage/": "a store is outside: it stamps files, waits, and names staged files",
    "src/trilake/common/progress.py": "bars",
    "src/trilake/expr/expression.py": "current_timestamp() where no time is passed",
    "src/trilake/expr/filter.py": "the same",
    "src/trilake/lance/sampler.py": "the caller requests random rows",
    "src/trilake/lance/pylance/dataset_rows.py": "the same",
    "src/trilake/lance/tracing.py": "a file name for users, as in pylance",
    "src/trilake/delta/commands/write/delete.py": "how long a command took, for its metrics",
}
_WORLD = re.compile(
    r"\buuid[14]\b|\btime\.(?:time|time_ns|monotonic|monotonic_ns|perf_counter|sleep)\b|\b(?:datetime|date)\.(?:now|utcnow|today)\b"
    r"|\bos\.urandom\b|\bimport (?:random|secrets)\b|\bdefault_rng\(\)"
)


def test_system_runtime_is_used_only_at_entry_points() -> None:
    home = PACKAGE / "common" / "runtime.py"
    names = {p: {n.id for n in ast.walk(parsed(p)) if isinstance(n, ast.Name)} for p in SOURCES if p != home}
    assert {ids(p) for p, used in names.items() if "SYSTEM_RUNTIME" in used} == ENTRY_POINTS
    calls = [n for p in names for n in ast.walk(parsed(p)) if isinstance(n, ast.Call)]
    assert [n.lineno for n in calls if getattr(n.func, "id", getattr(n.func, "attr", "")) == "Runtime"] == []


def test_only_listed_modules_use_clock_or_randomness() -> None:
    home = PACKAGE / "common" / "runtime.py"
    asking = {ids(p) for p in SOURCES if p != home and _WORLD.search(p.read_text())}
    assert {p for p in asking if not p.startswith(tuple(OUTSIDE))} == set()
    assert {o for o in OUTSIDE if not any(p.startswith(o) for p in asking)} == set()


def test_test_folders_mirror_the_package() -> None:
    """Except for the seven folders that CONTRIBUTING lists as having no counterpart in the package."""
    of_their_own = ("docs", "house", "interop", "matrix", "mistakes", "reliability", "simulation")
    folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py")}
    stray = {f for f in folders if f.parts[:1] not in [(o,) for o in of_their_own] and not (PACKAGE / f).is_dir()}
    assert stray == set()
    assert {o for o in of_their_own if (PACKAGE / o).exists()} == set()


def test_no_file_names_a_registry_or_local_path() -> None:
    # Split in two, or this file would match itself.
    words = ["pypi" + ".org", "pythonhosted" + ".org", "/ro" + "ot/", "/wo" + "rk/"]
    pattern = re.compile("|".join(map(re.escape, words)))
    bad = [ids(p) for p in text_files() if pattern.search(p.read_text(errors="replace"))]
    assert bad == []


def test_links_between_documents_resolve() -> None:
    documents = [p for p in text_files() if p.suffix == ".md"]
    links = [(d, t) for d in documents for t in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", d.read_text())]
    assert len(links) > 10
    # Pages that scripts/site/pages.py generates when the site is built.
    made = {ROOT / "docs" / "reference" / name for name in ("errors.md", "options.md", "properties.md")}
    local = [(d, t) for d, t in links if "://" not in t and (d.parent / t).resolve() not in made]
    assert [(ids(d), t) for d, t in local if not (d.parent / t).exists()] == []


def test_documented_merge_steps_name_existing_code() -> None:
    """Each file exists and defines the names given for it."""
    text = (ROOT / "docs" / "internals" / "index.md").read_text()
    walk = text.partition("### A merge, step by step")[2].partition("\n## ")[0]
    files = re.findall(r"`([\w/]+/\w+\.py)`", walk)
    assert len(files) > 15
    assert [f for f in files if not (PACKAGE / f).is_file()] == []
    named = re.findall(r"`(?:\w+\.)?(\w+)`\s+\(`([\w/]+\.py)`\)", walk)
    assert len(named) > 15
    assert [
        (n, f) for n, f in named if not re.search(rf"^ *(?:def|class) {n}\b", (PACKAGE / f).read_text(), re.MULTILINE)
    ] == []


def test_every_direct_dependency_is_explained() -> None:
    text = (ROOT / "docs" / "internals" / "dependencies.md").read_text()
    explained = {canonicalize_name(name) for name in re.findall(r"`([\w.-]+)`", text)}
    assert {canonicalize_name(r.name) for r in direct_requirements()} - explained == set()


def test_version_and_licence() -> None:
    version = PROJECT["project"]["version"]
    assert trilake.__version__ == version
    assert re.search(rf"^## .*\b{re.escape(version)}", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    licence = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert (ROOT / "src" / "trilake" / "py.typed").is_file()
