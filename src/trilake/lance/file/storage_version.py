"""Versions of data files, by number and by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trilake.errors import InvalidArgumentError, UnsupportedProtocolError
from trilake.lance.file import types
from trilake.lance.file.schema import Field, LanceSchema


@dataclass(frozen=True, order=True)
class StorageVersion:
    """A version of data files.

    >>> StorageVersion.parse("stable"), StorageVersion.parse("2.1") < STABLE
    (StorageVersion(2, 2), True)
    """

    major: int
    minor: int

    @classmethod
    def parse(cls, name: object) -> StorageVersion:
        """Parse the name of a version.  Raises ``InvalidArgumentError``."""
        version = _NAMES.get(name) if isinstance(name, str) else None
        if version is None:
            raise InvalidArgumentError(
                f"{name!r} is not a valid data_storage_version", help=f"use one of {', '.join(map(repr, _NAMES))}"
            )
        return version

    @classmethod
    def of_file(cls, major: int, minor: int) -> StorageVersion:
        """The version in a data file's manifest entry, which may omit it for the legacy format."""
        if (major, minor) == (0, 3):  # the version number in the files themselves
            return cls(2, 0)
        return LEGACY if major == 0 and minor <= 2 else cls(major, minor)

    def __repr__(self) -> str:
        return f"StorageVersion({self.major}, {self.minor})"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @property
    def is_legacy(self) -> bool:
        """Whether it is the legacy format, which has no nulls for most types."""
        return self.major == 0

    def check_types(self, schema: LanceSchema) -> None:
        """Raise ``UnsupportedProtocolError``, with the column, for a type that files of this version cannot hold."""
        for field in schema.walk():
            above = schema.above(field)
            least = _oldest(field, above)
            if least is None or self < least:
                inside = f" in {above[-1].logical_type!r}" if least is None and above else ""
                newer = f'write the dataset with data_storage_version="{least}" or newer, or cast the column'
                raise UnsupportedProtocolError(
                    f"files of Lance {self} cannot store type {field.logical_type!r}{inside}",
                    help="cast the column" if least is None else newer,
                    column=schema.name_of(field),
                )


LEGACY = StorageVersion(0, 1)
STABLE = StorageVersion(2, 2)
#: The first version in which fields of existing structs can be added.
NESTED_COLUMNS = StorageVersion(2, 2)
#: The default version to write.
DEFAULT = STABLE
#: Versions that can be written, and versions that can be read.
WRITABLE = (LEGACY, StorageVersion(2, 0), StorageVersion(2, 1), STABLE)
READABLE = (*WRITABLE, StorageVersion(2, 3))

_NAMES = {"legacy": LEGACY, **{str(v): v for v in READABLE}, "stable": STABLE, "next": READABLE[-1]}


def _oldest(field: Field, above: Sequence[Field]) -> StorageVersion | None:
    """The oldest version whose files can hold a field; ``None`` if there is none."""
    kind = field.logical_type
    if kind == "map":
        return STABLE
    if types.is_struct_vector(kind):
        # pylance combines them with lists only in 2.3.
        lists = [f for f in (*above, *field.walk()) if f.logical_type in types.LISTS or f.logical_type == "map"]
        return None if lists else STABLE
    if kind == "json" or kind.startswith("fixed_size_list:fixed_size_list:"):
        return StorageVersion(2, 0)
    if kind.startswith("dict:") and not kind.startswith(_LEGACY_DICTIONARIES):
        return StorageVersion(2, 0)
    return LEGACY


#: Dictionaries of the legacy format hold strings, binaries or integers.
_LEGACY_DICTIONARIES = tuple(
    f"dict:{name}:"
    for name in (
        *("string", "binary", "large_string", "large_binary"),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
