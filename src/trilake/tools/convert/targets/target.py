"""The two halves of a target: files that no reader sees, read back by whoever wrote them, made visible at the end.

:class:`Rows` travels to tasks: it writes rows into files and reads those files back.
:class:`Target` stays where the conversion was called: it makes files of all tasks a version, or gives them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from trilake.delta.engine import Engine
from trilake.tools.convert.sources import Source

_T = pa.types


class Rows(Protocol):
    """The half of a target that tasks have."""

    def write(self, task: int, batches: Iterable[pa.RecordBatch]) -> Any:
        """Write rows into files that nobody sees yet; what names them can be pickled."""

    def read_back(self, written: Any) -> Iterator[pa.RecordBatch]:
        """The rows of such files, in the source's columns."""


@dataclass(frozen=True)
class Done:
    """What there is after the commit."""

    version: int | None
    files: int
    bytes: int


class Target(Protocol):
    """The half of a target that stays."""

    @property
    def rows(self) -> Rows:
        """The half that travels."""

    @property
    def exact(self) -> bool:
        """Whether the rows that were read must be those that are read back."""

    def commit(self, written: Sequence[Any]) -> Done:
        """Make the files of all tasks visible."""

    def discard(self, written: Sequence[Any]) -> None:
        """Remove the files of tasks, which nobody has seen."""


@dataclass(frozen=True)
class TargetRequest:
    """What is asked of a target."""

    format: str
    mode: str
    partition_by: tuple[str, ...] | None
    options: Mapping[str, str]
    data_format: str | None
    #: Whether tasks write that cannot tell each other anything.
    distributed: bool
    #: Formats of files, what follows a commit, and clock and ids.
    engine: Engine


def kept_partitions(source: Source, request: TargetRequest, exists: bool) -> tuple[str, ...] | None:
    """Columns for folders whose names are all that is left of them: those that are read as they were."""
    if request.partition_by is not None:
        return request.partition_by
    if exists and request.mode == "append":
        return None
    types = [source.schema.field(n).type for n in source.partition_by]
    plain = all(_T.is_integer(t) or _T.is_string(t) or _T.is_date32(t) for t in types)
    return source.partition_by if plain and len(types) < len(source.schema) else ()
