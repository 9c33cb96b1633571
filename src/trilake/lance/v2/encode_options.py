"""Encoding options in the metadata of a field (``lance-encoding:*``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trilake.errors import InvalidArgumentError

_PREFIX = "lance-encoding:"
#: Schemes of general compression.
GENERAL = ("zstd", "lz4")
#: Values of at least this many bytes use the full-zip layout by default.
WIDE = 256


@dataclass(frozen=True)
class Options:
    """Encoding options of one column; an option that is ``None`` depends on the values.

    >>> Options.of({b"lance-encoding:compression": b"zstd", b"lance-encoding:compression-level": b"9"}).level
    9
    """

    compression: str | None = None
    level: int | None = None
    rle_threshold: float = 0.5
    bss: str = "auto"
    structure: str | None = None
    dict_divisor: int = 2
    dict_size_ratio: float = 0.8
    dict_values: str | None = None
    dict_values_level: int | None = None
    chunk_bytes: int | None = None
    blob: bool = False

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes]) -> Options:
        """Read the metadata of a field.  Raises ``InvalidArgumentError`` for an invalid value."""
        keys = {k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in metadata.items()}
        if not any(key.startswith(_PREFIX) for key in keys):
            return _DEFAULT

        def choice(key: str, *choices: str) -> str | None:
            value = keys.get(_PREFIX + key, "").strip().lower() or None
            if value is not None and value not in choices:
                raise _error(key, " or ".join(choices), value)
            return value

        def number(key: str, least: float, most: float) -> float | None:
            value = keys.get(_PREFIX + key)
            if value is None:
                return None
            try:
                result = float(value)
            except ValueError:
                result = float("nan")
            if not least <= result <= most:
                raise _error(key, f"a number from {least:g} to {most:g}", value)
            return result

        def whole(key: str, least: int, most: int) -> int | None:
            value = number(key, least, most)
            return None if value is None else int(value)

        threshold = number("rle-threshold", 0, 1)
        ratio = number("dict-size-ratio", 0, 1)
        return cls(
            compression=choice("compression", *GENERAL, "fsst", "none"),
            level=whole("compression-level", -(1 << 17), 22),
            rle_threshold=cls.rle_threshold if threshold is None else threshold,
            bss=choice("bss", "on", "off", "auto") or "auto",
            structure=choice("structural-encoding", "miniblock", "fullzip"),
            dict_divisor=whole("dict-divisor", 1, 1 << 31) or cls.dict_divisor,
            dict_size_ratio=cls.dict_size_ratio if ratio is None else ratio,
            dict_values=choice("dict-values-compression", *GENERAL, "none"),
            dict_values_level=whole("dict-values-compression-level", -(1 << 17), 22),
            chunk_bytes=whole("minichunk-size", 1, 1 << 30),
            blob=keys.get(_PREFIX + "blob", "").lower() == "true",
        )

    def zips(self, width: int) -> bool:
        """Whether values of ``width`` bytes use the full-zip layout."""
        return width >= WIDE if self.structure is None else self.structure == "fullzip"


_DEFAULT = Options()


def whole_number(metadata: Mapping[bytes, bytes], key: str, default: int) -> int:
    """Read a number of bytes from the metadata of a field.  Raises ``InvalidArgumentError``."""
    value = metadata.get((_PREFIX + key).encode())
    if value is None:
        return default
    if not value.isdigit():
        raise _error(key, "a number of bytes", value.decode("utf-8", "replace"))
    return int(value)


def _error(key: str, expected: str, value: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"expected {expected} as {_PREFIX}{key}, got {value!r}", help="fix or remove this metadata of the field"
    )
