"""Progress bars: shown in a terminal, silent elsewhere."""

import io
import sys
import types

import pytest

from trilake.common import progress as module
from trilake.common.progress import progress, track


def test_no_bar_without_a_terminal(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRILAKE_PROGRESS", raising=False)
    monkeypatch.setattr(module, "_DELAY", 0.0)
    assert list(track(range(5), "vacuum", 5)) == [0, 1, 2, 3, 4]
    out = capfd.readouterr()
    assert out.out == out.err == ""


def test_bar_counts_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILAKE_PROGRESS", "1")
    monkeypatch.setattr(module, "_DELAY", 0.0)
    out = io.StringIO()
    with progress("optimize", 4, file=out) as bar:
        bar.advance(3)
    assert "optimize" in out.getvalue()
    assert "3/4" in out.getvalue()


def test_short_work_draws_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILAKE_PROGRESS", "1")
    out = io.StringIO()
    with progress("optimize", 4, file=out) as bar:
        bar.advance(4)
    assert out.getvalue() == ""


@pytest.mark.parametrize("wish", ["0", "off", "False"])
def test_bars_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("TRILAKE_PROGRESS", wish)
    assert not module.is_shown()


def test_bar_is_drawn_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRILAKE_PROGRESS", raising=False)
    shell = type("ZMQInteractiveShell", (), {})()
    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: shell  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", fake)
    assert module.is_shown()


def test_notebook_without_widgets_gets_text_and_no_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.delenv("TRILAKE_PROGRESS", raising=False)
    monkeypatch.setattr(module, "_DELAY", 0.0)
    monkeypatch.setattr(module, "_EVERY", 0.0)
    monkeypatch.setattr(module, "_in_notebook", lambda: True)
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with progress("optimize", 4000) as bar:
        bar.advance(3)
        bar.advance(3997)
    assert capsys.readouterr().err == (
        "\roptimize 3/4,000 files\roptimize 4,000/4,000 files\roptimize 4,000 files, done\n"
    )
    assert not recwarn.list


def test_error_removes_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRILAKE_PROGRESS", "1")
    monkeypatch.setattr(module, "_DELAY", 0.0)

    def broken() -> None:
        with progress("optimize", 4, file=io.StringIO()) as bar:
            bars.append(bar)
            bar.advance()
            raise ValueError("no")

    bars: list[module.Bar] = []
    with pytest.raises(ValueError, match="no"):
        broken()
    assert bars[0]._bars is None
