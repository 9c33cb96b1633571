"""``python -m trilake``: the same as the command ``trilake``."""

from __future__ import annotations

from trilake.cli import main

if __name__ == "__main__":
    main()
