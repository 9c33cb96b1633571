"""The command ``trilake``: inspect, query, change and maintain tables from a shell.

Spark is used only with ``--spark``.  Commands pass values to ``output``, which prints them for people or as JSON;
``values`` escapes strings from tables.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and exit with its code; 2 if typer is not installed."""
    try:
        from trilake.cli.app import run
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] not in ("typer", "click", "shellingham"):
            raise
        print('trilake: the command line needs typer: pip install "trilake[cli]"', file=sys.stderr)
        raise SystemExit(2) from None
    run()
