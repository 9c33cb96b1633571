"""The command ``trilake``: tables looked at, queried, changed and kept in shape from a shell, without Spark.

``output`` is the one place that prints; a command gathers values and hands them to it, so each has a console form and
``--json``.  Nothing of a table reaches a terminal before ``text`` has made it harmless.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process and end the process with its exit code.

    Without typer, one line says what to install, and the exit code is 2.
    """
    try:
        import typer  # noqa: F401 - the first import of an extra, so that its absence is told from any other error
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("typer", "click", "shellingham"):
            raise
        print(
            'trilake: the command line needs typer, which is not installed: pip install "trilake[cli]"', file=sys.stderr
        )
        raise SystemExit(2) from None
    from trilake.cli.app import run

    run()
