"""Error messages for user mistakes, in reviewed golden files.

``TRILAKE_RECORD=1`` rewrites the golden files; review the diff.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.mistakes.mistakes_without_spark import MISTAKES, Tables
from trilake.errors import TrilakeError

#: Log and developer terms that must not occur in user messages.
_NOT_FOR_USERS = re.compile(
    r"Traceback|sqlglot|py4j|obstore|pyo3|Py4J|org\.apache|java\.|\.scala|Some\(|Os \{|panicked|object at 0x"
    r"|site-packages"
)
_MOST_LINES, _MOST_LETTERS = 5, 1100


def _message_of(
    call: Callable[[Any], Any], with_what: Any, folder: Path
) -> tuple[BaseException | None, dict[str, Any]]:
    try:
        call(with_what)
    except Exception as e:  # noqa: BLE001 - whatever is raised is what is looked at
        return e, {"error": type(e).__name__, "says": _normalized(str(e), folder)}
    return None, {"error": None, "says": ""}


def _normalized(text: str, folder: Path) -> str:
    """The message without parts that differ between runs."""
    text = text.replace(str(folder), "<folder>").replace(folder.as_uri(), "file://<folder>")
    text = re.sub(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"<id>-[0-9a-f]{8}\b", "<id>-<n>", text)
    text = re.sub(r"\b(?:[0-9a-f]{32}|[01]{24}[0-9a-f]{26})\b", "<id>", text)
    text = re.sub(r"found \[[-\d, ]+\]", "found <bytes>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)?", "<time>", text)
    return re.sub(r"\b\d{13}\b", "<ms>", text)


def _check(found: dict[str, tuple[BaseException | None, dict[str, Any]]], name: str) -> None:
    golden = Path(__file__).parent / name
    shown = {k: message for k, (_, message) in found.items()}
    if os.environ.get("TRILAKE_RECORD"):
        golden.write_text(json.dumps(shown, indent=1, ensure_ascii=False) + "\n")
    problems = []
    for mistake, (error, message) in found.items():
        text = message["says"]
        if error is None:
            problems.append(f"{mistake}: nothing is said")
        elif not isinstance(error, TrilakeError | TypeError | ValueError) and "Analysis" not in type(error).__name__:
            problems.append(f"{mistake}: {type(error).__name__} is not a trilake error: {text}")
        elif _NOT_FOR_USERS.search(text):
            problems.append(f"{mistake}: says what is not for users: {text}")
        elif text.count("\n") >= _MOST_LINES or len(text) > _MOST_LETTERS:
            problems.append(f"{mistake}: {text.count(chr(10)) + 1} lines, {len(text)} letters: {text}")
    assert not problems, "\n".join(problems)
    assert shown == json.loads(golden.read_text())


def test_mistakes_without_spark(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    found = {name: _message_of(call, tables, tmp_path) for name, call in MISTAKES.items()}
    assert len(found) >= 100
    _check(found, "mistakes_without_spark.json")


def test_mistakes_on_spark(spark: Any, tmp_path: Path) -> None:
    import trilake
    from tests.mistakes.mistakes_on_spark import MISTAKES, OnSpark

    trilake.register(spark)
    session = OnSpark(spark, Tables(tmp_path))
    found = {name: _message_of(call, session, tmp_path) for name, call in MISTAKES.items()}
    assert len(found) >= 48
    _check(found, "mistakes_on_spark.json")
