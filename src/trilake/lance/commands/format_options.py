"""Options of later releases that say which format files are written in: those of the first one are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trilake.errors import InvalidArgumentError
from trilake.lance.file.errors import WrongTypeError

#: By option: the values that say what is written here, and what the other ones ask for.
_OPTIONS: dict[str, tuple[tuple[object, ...], str]] = {
    "data_storage_version": ((None, "0.1", "legacy"), "files of Lance 2.x"),
    "use_legacy_format": ((None, True), "files of Lance 2.x"),
    "enable_v2_manifest_paths": ((None, False), "manifests with names that old readers do not know"),
    "enable_stable_row_ids": ((None, False), "row ids that stay when rows move"),
}


def check_format(options: Mapping[str, Any], *, of: str) -> None:
    """Check options that a writer has not taken for itself.

    Raises ``WrongTypeError`` for one that is not known, ``InvalidArgumentError`` for another format than the first one.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            raise WrongTypeError(f"{of} has no option {name!r}")
        written, others = _OPTIONS[name]
        if not any(value is one or (isinstance(one, str) and value == one) for one in written):
            raise InvalidArgumentError(
                f"{name} is {value!r}, which asks for {others}",
                help=f"this library writes the first format: leave it out, or pass {written[-1]!r}",
            )
