"""The house itself: set-up, lock file, contracts, documents and the rules that hold for every file."""

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
#: Directories with files that are generated or not ours.
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
def texts() -> list[Path]:
    """All text files of the repository."""
    suffixes = {".py", ".md", ".toml", ".properties", ".lock", ""}
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in IGNORED and not f.endswith(("_cache", ".egg-info"))]
        folders[:] = [f for f in folders if f != ".hypothesis"]
        found += [Path(folder, f) for f in files if Path(f).suffix in suffixes and f not in IGNORED]
    return sorted(found)


# --- lock file -------------------------------------------------------------------------------------------------------


#: What the extra of its name brings apart from the libraries of Lance: 5 GB, which neither the lock nor ``all`` has.
TORCH = "torch"


def direct_requirements() -> list[Requirement]:
    """Everything that pyproject.toml asks for, development included, except for torch."""
    listed = list(PROJECT["project"]["dependencies"])
    for extra in PROJECT["project"]["optional-dependencies"].values():
        listed += extra
    for group in PROJECT["dependency-groups"].values():
        listed += [entry for entry in group if isinstance(entry, str)]
    requirements = [Requirement(text) for text in [*listed, *PROJECT["build-system"]["requires"]]]
    return [r for r in requirements if r.name != TORCH]


def test_the_extra_all_is_all_extras_but_for_torch() -> None:
    extras = {name: set(listed) for name, listed in PROJECT["project"]["optional-dependencies"].items()}
    whole = extras.pop("all")
    [own] = extras.pop(TORCH) - extras["lance"]
    assert Requirement(own).name == TORCH
    assert whole == set().union(*extras.values())
    assert TORCH not in locked()


@cache
def locked() -> dict[str, list[str]]:
    """The versions in the lock file by package; several where platforms differ."""
    versions: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            requirement = Requirement(line.removesuffix("\\"))
            (pin,) = requirement.specifier
            assert pin.operator == "==", line
            versions.setdefault(canonicalize_name(requirement.name), []).append(pin.version)
    return versions


@pytest.mark.parametrize("requirement", direct_requirements(), ids=str)
def test_the_lock_satisfies(requirement: Requirement) -> None:
    versions = locked()[canonicalize_name(requirement.name)]
    assert all(requirement.specifier.contains(v, prereleases=True) for v in versions)


def test_every_locked_package_has_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"\n(?=[^ #])", text)
    assert len(entries) > 50
    assert [e for e in entries if "--hash=sha256:" not in e] == []
    assert "://" not in text


def test_the_environment_is_the_locked_one() -> None:
    """Tests that run against other versions than the lock file's say nothing about the lock file."""
    import importlib.metadata

    environment = default_environment()
    assert environment["python_version"] in ("3.11", "3.12", "3.13")
    for name in "pyarrow", "pyspark", "duckdb", "obstore", "deltalake":
        assert importlib.metadata.version(name) in locked()[name]


# --- set-up ----------------------------------------------------------------------------------------------------------


def fake_python(folder: Path, name: str, *, version: str = "3.11", venv: bool = True) -> None:
    """A program that answers scripts/venv like a Python of some version, and makes no environment."""
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
    """A folder with what scripts/venv needs, and in ``bin`` the programs it may call, but no Python."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "venv", tmp_path / "scripts")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    (tmp_path / "bin").mkdir()
    for program in "dirname", "awk", "grep", "cat":
        found = shutil.which(program)
        assert found
        (tmp_path / "bin" / program).symlink_to(found)
    user = tmp_path / "bin" / "id"
    user.write_text("#!/bin/sh\necho 1000\n")
    user.chmod(0o755)
    return tmp_path


def set_up(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", checkout / "scripts" / "venv"],
        env={"PATH": str(checkout / "bin"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_set_up_takes_the_newest_python_that_works(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3.13", version="3.13", venv=False)
    fake_python(checkout / "bin", "python3.12", version="3.12")
    fake_python(checkout / "bin", "python3.11", version="3.11")
    done = set_up(checkout)
    assert done.returncode == 9  # the fake cannot go on from here
    assert done.stdout == "python3.12 -m venv --clear .venv\n"
    assert set_up(checkout, PYTHON="python3.11").stdout == "python3.11 -m venv --clear .venv\n"


def test_set_up_says_what_to_type_without_python(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3", version="3.9")
    done = set_up(checkout)
    assert done.returncode == 1
    assert "trilake needs Python 3.11, 3.12 or 3.13" in done.stderr
    assert "Type:  apt-get install python3 python3-venv" in done.stderr


def test_set_up_says_what_to_type_without_venv(checkout: Path) -> None:
    fake_python(checkout / "bin", "python3.9", version="3.9")
    fake_python(checkout / "bin", "python3", version="3.12", venv=False)
    done = set_up(checkout)
    assert done.returncode == 1
    assert "Type:  sudo apt-get install python3.12-venv" in done.stderr


def test_set_up_installs_the_venv_package_as_root(checkout: Path) -> None:
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
    assert set_up(checkout).stdout == "python3.12 -m venv --clear .venv\n"
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


def test_targets_that_need_python_make_the_environment() -> None:
    rule = r"^(\w+):([^#\n]*)##[^\n]*\n(?:\t[^\n]*\n)*?\t[^\n]*\$\((?:PY|VENV)\)"
    uses_python = re.findall(rule, (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(uses_python) > 5
    without = [name for name, needs in uses_python if "$(LOCKED)" not in needs]
    assert without == ["clean"]


def test_ci_runs_the_tests_first_and_then_every_check() -> None:
    steps = re.findall(r"^ *step (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps == ["test", "long", "types", "docs", "lint", "contracts", "doctest"]
    assert make("-n", "check").strip() == ".ci/run"
    for script in ".ci/run", "scripts/venv", "scripts/lock":
        assert os.access(ROOT / script, os.X_OK), script


@pytest.mark.parametrize("failing", ["test", "types", "lint", "docs"])
def test_a_failing_step_fails_ci_but_not_the_other_steps(tmp_path: Path, failing: str) -> None:
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


def test_no_stub_stands_behind_a_name() -> None:
    """An error may be of that class for those who catch it; nothing may raise the class itself."""

    def stub(path: Path) -> bool:
        nodes = list(ast.walk(parsed(path)))
        bases = {base for n in nodes if isinstance(n, ast.ClassDef) for base in n.bases}
        return "NotImplementedError" in {n.id for n in nodes if isinstance(n, ast.Name) and n not in bases}

    assert [ids(p) for p in SOURCES if stub(p)] == []


def test_no_source_file_uses_what_is_for_tests() -> None:
    imports = {p: [n for n in ast.walk(parsed(p)) if isinstance(n, ast.Import)] for p in SOURCES}
    assert [ids(p) for p, found in imports.items() if "unittest" in {a.name for n in found for a in n.names}] == []


def test_every_folder_is_a_package() -> None:
    """A folder without ``__init__.py`` can be imported, but the contracts do not see it."""
    folders = {p.parent for p in SOURCES} - {ROOT / "src"}
    assert [ids(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


PACKAGE = ROOT / "src" / "trilake"


def names_of_the_package(tree: ast.Module) -> set[str]:
    """What a module takes from the package ``trilake`` itself, submodules left out."""
    taken: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "trilake":
            taken |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "trilake":
            taken.add(node.attr)
    return {n for n in taken if not ((PACKAGE / f"{n}.py").exists() or (PACKAGE / n).is_dir())}


def test_names_of_the_package_are_seen() -> None:
    tree = ast.parse(
        "import trilake\nfrom trilake import errors, read\ndef f():\n    trilake.open(trilake.table.table)"
    )
    assert names_of_the_package(tree) == {"open", "read"}


def test_no_module_uses_the_front_door() -> None:
    """``trilake.open`` inside the package would be an import of a layer to the right that no contract sees."""
    inside = [p for p in SOURCES if p != PACKAGE / "__init__.py"]
    assert [ids(p) for p in inside if not names_of_the_package(parsed(p)) <= {"__version__"}] == []


def imports_of(path: Path, modules: set[str]) -> set[str]:
    """The modules of the package that a module imports: at its head, inside functions, and for type checkers."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{a.name}" for a in node.names}
            found |= {name if name in modules else node.module for name in whole}
    return found & modules


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that lead to each other: what is left when modules without a way in or out are taken."""
    left = dict(graph)
    while True:
        reached = set().union(*(left[m] & left.keys() for m in left)) if left else set()
        ends = {m for m in left if not left[m] & left.keys() or m not in reached}
        if not ends:
            return [sorted(left)] if left else []
        left = {m: targets for m, targets in left.items() if m not in ends}


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_no_circle_of_imports() -> None:
    """Not at the head of a module, not inside functions, not for type checkers alone."""
    names = {p: ".".join(p.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__") for p in SOURCES}
    modules = set(names.values()) - {"trilake"}  # the front door names what is in the rooms
    graph = {name: imports_of(p, modules) - {name} for p, name in names.items() if name in modules}
    assert circles(graph) == []


#: Where the runtime of this machine may be taken: engines, and what opens a table or dataset without one.
DOORS = {
    "src/trilake/delta/engine.py",
    "src/trilake/delta/standard.py",
    "src/trilake/lance/commit.py",
    "src/trilake/lance/format.py",
    "src/trilake/lance/fragment_writes.py",
    "src/trilake/lance/table.py",
    "src/trilake/tools/convert/run.py",
    "src/trilake/trevni/format.py",
    "src/trilake/trevni/tables/row_groups.py",
    "src/trilake/trevni/tables/table_write.py",
}

#: Where else the clock or chance of this machine is asked, and why no runtime is passed in.
OUTSIDE = {
    "src/trilake/storage/": "a store is the world: it stamps files, waits for its turn, and names what it stages",
    "src/trilake/common/progress.py": "bars",
    "src/trilake/expr/expression.py": "what current_timestamp() means for those who pass no time",
    "src/trilake/expr/filter.py": "the same",
    "src/trilake/lance/sampler.py": "rows at random are what the caller asks for",
    "src/trilake/lance/pylance/arrow_dataset.py": "the same",
    "src/trilake/lance/tracing.py": "the name of a file for people, as pylance gives it",
    "src/trilake/delta/commands/write/delete.py": "how long a command took, for its metrics",
}
_WORLD = re.compile(
    r"\buuid[14]\b|\btime\.(?:time|time_ns|monotonic|monotonic_ns|perf_counter|sleep)\b|\b(?:datetime|date)\.(?:now|utcnow|today)\b"
    r"|\bos\.urandom\b|\bimport (?:random|secrets)\b|\bdefault_rng\(\)"
)


def test_clock_and_randomness_are_passed_in_from_one_place() -> None:
    home = PACKAGE / "common" / "runtime.py"
    names = {p: {n.id for n in ast.walk(parsed(p)) if isinstance(n, ast.Name)} for p in SOURCES if p != home}
    assert {ids(p) for p, used in names.items() if "SYSTEM_RUNTIME" in used} == DOORS
    calls = [n for p in names for n in ast.walk(parsed(p)) if isinstance(n, ast.Call)]
    assert [n.lineno for n in calls if getattr(n.func, "id", getattr(n.func, "attr", "")) == "Runtime"] == []


def test_nothing_else_asks_the_clock_or_chance_of_this_machine() -> None:
    home = PACKAGE / "common" / "runtime.py"
    asking = {ids(p) for p in SOURCES if p != home and _WORLD.search(p.read_text())}
    assert {p for p in asking if not p.startswith(tuple(OUTSIDE))} == set()
    assert {o for o in OUTSIDE if not any(p.startswith(o) for p in asking)} == set()


def test_tests_stand_in_the_folders_of_what_they_test() -> None:
    """Except for the seven of which CONTRIBUTING says that they have no counterpart in the package."""
    of_their_own = ("docs", "house", "interop", "matrix", "mistakes", "reliability", "simulation")
    folders = {p.parent.relative_to(ROOT / "tests") for p in (ROOT / "tests").rglob("test_*.py")}
    stray = {f for f in folders if f.parts[:1] not in [(o,) for o in of_their_own] and not (PACKAGE / f).is_dir()}
    assert stray == set()
    assert {o for o in of_their_own if (PACKAGE / o).exists()} == set()


def test_no_file_names_a_registry_or_a_place_on_this_machine() -> None:
    # Written in two parts, or this file would find itself.
    words = ["pypi" + ".org", "pythonhosted" + ".org", "/ro" + "ot/", "/wo" + "rk/"]
    pattern = re.compile("|".join(map(re.escape, words)))
    bad = [ids(p) for p in texts() if pattern.search(p.read_text(errors="replace"))]
    assert bad == []


def test_links_between_documents_lead_somewhere() -> None:
    documents = [p for p in texts() if p.suffix == ".md"]
    links = [(d, t) for d in documents for t in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", d.read_text())]
    assert len(links) > 10
    # Pages that scripts/site/pages.py makes of the code when the site is built.
    made = {ROOT / "docs" / "reference" / name for name in ("errors.md", "options.md", "properties.md")}
    local = [(d, t) for d, t in links if "://" not in t and (d.parent / t).resolve() not in made]
    assert [(ids(d), t) for d, t in local if not (d.parent / t).exists()] == []


def test_the_walk_of_a_merge_names_what_is_there() -> None:
    """Each file is there, and defines what the walk says is in it."""
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
