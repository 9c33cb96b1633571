"""The files of a local store, and failing system calls."""

from __future__ import annotations

import os
from pathlib import Path


def files(root: Path) -> list[str]:
    """Every file below the root, including temporary ones."""
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


def fails_with(code: int):
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail
