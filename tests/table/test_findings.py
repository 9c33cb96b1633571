"""``Findings``, ``Repairs`` and check runs: no stop at the first finding, and no traceback."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from trilake.errors import CorruptLogError, InvalidArgumentError
from trilake.table.findings import (
    MAX_LISTED,
    Check,
    Finding,
    Findings,
    NotCheckedError,
    Repairs,
    RepairStep,
    as_depth,
    run_checks,
)


def one(code: str, run: object, depth: str = "log") -> Check[int]:
    return Check(code, f"promise of {code}", as_depth(depth), run)  # type: ignore[arg-type]


def many(count: int) -> Generator[Finding, None, int]:
    for i in range(count):
        yield Finding("x.many", f"number {i}")
    return count


def broken(_: int) -> Generator[Finding, None, int]:
    yield Finding("x.broken", "the first")
    raise CorruptLogError("the log is damaged", file="f", version=3, help="restore it")


def surprising(_: int) -> Generator[Finding, None, int]:
    yield from ()
    raise ZeroDivisionError("at s3://user:secret@bucket")


def barred(_: int) -> Generator[Finding, None, int]:
    yield from ()
    raise NotCheckedError("the version cannot be made up")


def test_failing_check_is_a_finding_and_others_run() -> None:
    checks = (one("x.broken", broken), one("x.surprising", surprising), one("x.barred", barred), one("x.many", many))
    findings, runs = run_checks(checks, 2, "log")
    assert [f.code for f in findings] == ["x.broken", "x.broken", "x.surprising", "x.many", "x.many"]
    assert (findings[1].message, findings[1].file, findings[1].version) == ("the log is damaged", "f", 3)
    assert "secret" not in findings[2].message
    assert [(r.outcome, r.found) for r in runs] == [("failed", 2), ("failed", 1), ("skipped", 0), ("failed", 2)]
    assert runs[2].reason == "the version cannot be made up"


def test_only_checks_of_the_depth_run() -> None:
    checks = (one("x.many", many), one("x.deep", many, "rows"))
    assert [r.code for r in run_checks(checks, 0, "files")[1]] == ["x.many"]
    with pytest.raises(InvalidArgumentError, match="log, files, rows"):
        as_depth("whole")


def test_many_findings_are_counted_and_few_listed() -> None:
    findings, (run,) = run_checks((one("x.many", many),), 3 * MAX_LISTED, "log")
    assert (len(findings), run.found, run.examined) == (MAX_LISTED, 3 * MAX_LISTED, 3 * MAX_LISTED)


def test_findings_become_json_arrow_and_html() -> None:
    hostile = Finding("x.y", "<script>", "help & more", severity="warning", file="a<b", details={"n": 1})
    found = Findings("s3://k:s@b", "delta", 3, "log", (hostile,), ())
    assert found.ok
    assert found
    assert found.codes == ("x.y",)
    loaded = json.loads(found.to_json())
    assert (loaded["ok"], loaded["findings"][0]["details"], "k:s" in loaded["uri"]) == (True, {"n": 1}, False)
    assert found.to_arrow().select(["code", "file"]).to_pylist() == [{"code": "x.y", "file": "a<b"}]
    assert "<script>" not in found._repr_html_()
    assert "x.y" in str(found)


def test_repairs_state_losses_and_requirements() -> None:
    steps = (
        RepairStep("x.drop", "drop <b>", ("x.y",), ("f",), rows_lost=3, needs="accept_loss"),
        RepairStep("x.write", "write", ("x.z",), done=True),
    )
    plan = Repairs("memory://x", "delta", 1, True, steps)
    assert plan.rows_lost == 3
    assert json.loads(plan.to_json())["steps"][0]["needs"] == "accept_loss"
    assert "needs accept_loss x.drop" in str(plan)
    assert "<b>" not in plan._repr_html_()
    assert Repairs("m", "delta", 1, True, (RepairStep("x", "y", (), rows_lost=None),)).rows_lost is None
