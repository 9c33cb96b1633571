"""Values of options, which users write as strings: understood in one way for all formats."""

from __future__ import annotations

import re
from typing import Literal

from trilake.errors import InvalidArgumentError

#: Files of a stream's batch where no one says another number: Delta's own default.
MAX_FILES = 1000
#: So many digits that every machine word and every store holds the number.
_WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")
_SIGNED = re.compile(r"\s*[+-]?[0-9]{1,18}\s*")


def flag(name: str, text: str | None, *, default: bool = False) -> bool:
    """What an option says that is true or false.  Raises ``InvalidArgumentError``.

    >>> flag("ignoreDeletes", "TRUE"), flag("failOnDataLoss", None, default=True)
    (True, True)
    """
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidArgumentError(f"option {name} is {text!r:.80}", help="it must be true or false")
    return text.lower() == "true"


def positive(name: str, text: str | None) -> int | None:
    """The whole number from 1 on that an option says; ``None`` where it is not given.

    Raises ``InvalidArgumentError``.

    >>> positive("maxFilesPerTrigger", " 5 ")
    5
    """
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or int(text) < 1:
        raise InvalidArgumentError(f"option {name} is {text!r:.80}", help="it must be a whole number from 1 on")
    return int(text)


def whole_number(text: str) -> int | None:
    """The number that a string says by its digits, ``None`` where it says none.

    >>> whole_number(" -3"), whole_number("1_0")  # which Python's own int() takes for 10
    (-3, None)
    """
    return int(text) if _SIGNED.fullmatch(text) else None


def stated_version(value: object) -> int:
    """The version that a statement names by a whole number or its digits.  Raises ``InvalidArgumentError``.

    >>> stated_version("3"), stated_version(0)
    (3, 0)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and (number := whole_number(value)) is not None:
        return number
    raise InvalidArgumentError(
        f"{value!s:.80} is not a version",
        help="a version is a whole number",
        condition="DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
    )


def starting_version(text: str | None) -> int | Literal["latest"] | None:
    """Where a stream begins by its option ``startingVersion``.  Raises ``InvalidArgumentError``.

    >>> starting_version("3"), starting_version("Latest")
    (3, 'latest')
    """
    if text is None:
        return None
    if text.strip().lower() == "latest":
        return "latest"
    if not _WHOLE.fullmatch(text):
        raise InvalidArgumentError(
            f"option startingVersion is {text!r:.80}", help="it is a version from 0 on, or latest"
        )
    return int(text)
