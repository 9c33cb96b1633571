"""Find and run code blocks of the documentation, and write them out for the type checker.

A block of Python, SQL or shell runs unchanged, in page order.  One that cannot run gives the reason in its fence:
````` ```python notrun="needs a bucket" `````; such blocks are counted by a test.
Prerequisites of a page that readers already have (a table, a session, a server) are set up by a block in a
comment, invisible to readers: ``<!-- before`` in front of it, ``<!-- after`` where something must be stopped.

``python -m tests.docs.blocks run FOLDER`` runs all pages in the folder, with one Spark session, and prints a line of
JSON for each page.  ``... write FOLDER`` writes each page's Python into a module for mypy.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("python", "sql", "sh")
#: Pages whose Python a newcomer runs again in the same folder, in a new process with an empty catalog.
AGAIN = ("README.md", "docs/index.md")
#: Languages that show syntax or output: nothing to run.
SHOWN = ("text", "json", "toml", "")
_FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: notrun="(?P<reason>[^"]+)")?(?P<rest>[^\n]*)\n'
    r"(?P<body>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code: ``reason`` says why it is not run, ``line`` where it begins."""

    page: str
    line: int
    language: str
    body: str
    reason: str | None
    rest: str


def pages() -> list[Path]:
    """Every page with code that users may copy: the README and the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            name_of(page),
            text.count("\n", 0, m.start()) + 1,
            m["language"],
            "".join(line.removeprefix(m["indent"]) for line in m["body"].splitlines(keepends=True)),
            m["reason"],
            m["rest"],
        )
        for m in _FENCE.finditer(text)
    ]


def blocks_to_run(page: Path) -> list[Block]:
    """The blocks of a page that run."""
    return [b for b in blocks_of(page) if b.language in LANGUAGES and b.reason is None]


# --- run -------------------------------------------------------------------------------------------------------------


def run_block(block: Block, names: dict[str, Any]) -> None:
    """Run a block in the namespace of its page, with its output captured."""
    match block.language:
        case "python":
            # Lines of a traceback are those of the page.
            code = compile("\n" * block.line + block.body, str(ROOT / block.page), "exec")
            exec(code, names)
        case "sql":
            from trilake import session

            spark = session()
            for statement in statements(block.body):
                spark.sql(statement).show()
        case "sh":
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["sh", "-euc", block.body],
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")


def statements(text: str) -> list[str]:
    """The statements of an SQL block, each ended by a semicolon and a newline."""
    return [s.strip() for s in re.split(r";\s*(?:\n|$)", text) if s.strip()]


def run_page(page: Path) -> dict[str, Any]:
    """Run the blocks of a page in an empty folder and an empty namespace; the first error ends it."""
    for entry in Path.cwd().iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    begin = time.monotonic()
    ran, error = _run_blocks(page)
    if error is None and name_of(page) in AGAIN:
        before = _rows()
        _tidy(keep_folders=True)
        _, error = _run_blocks(page, "python")
        if error is None and (after := _rows()) != before:
            error = f"{name_of(page)}: a second run leaves {after} rows, the first {before}"
    _tidy()
    return {"page": name_of(page), "ran": ran, "error": error, "seconds": round(time.monotonic() - begin, 1)}


def _run_blocks(page: Path, *languages: str) -> tuple[int, str | None]:
    """Run the blocks of a page, or those in these languages; how many ran, and the error that ended them."""
    names: dict[str, Any] = {"__name__": "__main__"}
    ran = 0
    for block in blocks_to_run(page):
        if languages and block.language not in languages:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run_block(block, names)
        except BaseException:  # noqa: BLE001 - the test shows any error of a page
            return ran, f"{block.page}, line {block.line}\n{traceback.format_exc(limit=-6)}"
        ran += 1
    return ran, None


def _rows() -> dict[str, int]:
    """The row count of each table in the catalog."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    tables = [] if spark is None else [t.name for t in spark.catalog.listTables() if t.tableType == "MANAGED"]
    return {name: spark.table(name).count() for name in tables if spark is not None}


def _tidy(*, keep_folders: bool = False) -> None:
    """Stop the page's queries and drop its tables, so that the next page starts like a new user."""
    from pyspark.sql import SparkSession

    from trilake.spark.catalog.entries import drop_entry

    spark = SparkSession.getActiveSession()
    if spark is None:
        return
    for query in spark.streams.active:
        query.stop()
    for table in spark.catalog.listTables():
        if keep_folders and not table.isTemporary:
            drop_entry(spark, [table.name])
            continue
        kind = "VIEW" if table.isTemporary else table.tableType if table.tableType == "VIEW" else "TABLE"
        spark.sql(f"DROP {kind} IF EXISTS `{table.name}`")


def run(folder: Path, names: list[str]) -> None:
    """Run the named pages in a folder, one after the other, and print a line of JSON for each."""
    os.chdir(folder)
    out = sys.stdout
    for page in pages():
        if blocks_to_run(page) and (not names or name_of(page) in names):
            print(json.dumps(run_page(page)), file=out, flush=True)


# --- the type checker ------------------------------------------------------------------------------------------------


def write(folder: Path) -> Mapping[str, int]:
    """Write the Python of each page into a separate module, with the line numbers of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    written = {}
    for page in pages():
        python = [b for b in blocks_to_run(page) if b.language == "python"]
        if not python:
            continue
        lines: list[str] = []
        for block in python:
            lines += [""] * (block.line - len(lines))
            lines += block.body.splitlines()
        module = re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
        (folder / f"{module}.py").write_text("\n".join(lines) + "\n")
        written[module] = len(python)
    return written


def results(lines: Iterator[str]) -> dict[str, dict[str, Any]]:
    """The output of ``run``, by page."""
    records = (json.loads(line) for line in lines if line.startswith("{"))
    return {r["page"]: r for r in records}


if __name__ == "__main__":
    command, folder, *more = sys.argv[1:]
    if command == "run":
        run(Path(folder), more)
    else:
        write(Path(folder))
