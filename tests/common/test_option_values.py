"""String options are parsed alike in all formats, with a typed error for invalid values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trilake.common.option_values import stated_version
from trilake.delta.stream.options import StreamOptions
from trilake.errors import InvalidArgumentError
from trilake.lance.table import write_options
from trilake.lance.versions.stream import parse_options
from trilake.trevni.tables.stream import parse_limit

_Number = Callable[[str], Any]
NUMBERS: dict[str, _Number] = {
    "delta stream": lambda text: StreamOptions.parse({"maxFilesPerTrigger": text}).max_files,
    "lance stream": lambda text: parse_options({"maxFilesPerTrigger": text}).max_fragments,
    "trevni stream": parse_limit,
    "lance write": lambda text: write_options({"maxRowsPerFile": text}).max_rows_per_file,
}
VERSIONS: dict[str, _Number] = {
    "delta": lambda text: StreamOptions.parse({"startingVersion": text}).starting_version,
    "lance": lambda text: parse_options({"startingVersion": text}).starting_version,
}


@pytest.mark.parametrize("format", NUMBERS)
def test_numeric_options_are_parsed_alike_in_all_formats(format: str) -> None:
    number = NUMBERS[format]
    assert (number("7"), number(" 7 ")) == (7, 7)
    # The superscript passes isdigit() but not int(), which rejects 5,000 digits as well.
    for wrong in ("0", "-1", "1.5", "", "many", "²", "٣", "9" * 5000):
        with pytest.raises(InvalidArgumentError) as error:
            number(wrong)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize("format", VERSIONS)
def test_starting_versions_are_parsed_alike_in_all_formats(format: str) -> None:
    version = VERSIONS[format]
    assert (version("0"), version(" 3 "), version("LATEST")) == (0, 3, "latest")
    for wrong in ("-1", "", "newest", "²", "٣", "9" * 5000):
        with pytest.raises(InvalidArgumentError):
            version(wrong)


@pytest.mark.parametrize("value", ["0_0", "1.5", 1.5, True, None, "", "٣"])
def test_version_must_be_an_integer(value: object) -> None:
    """``VERSION AS OF '1_0'`` was version 10, and ``VERSION AS OF 0.5`` of a clone version 0."""
    with pytest.raises(InvalidArgumentError, match="is not a valid version"):
        stated_version(value)
