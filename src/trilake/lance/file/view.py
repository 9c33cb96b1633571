"""What users see of a dataset's columns, and what is stored of them.

The format has no nulls for most types.  A companion column that keeps them (see :mod:`trilake.lance.file.null_masks`)
is not a column of its own here: it is read with the column it belongs to, and folded into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from trilake.lance.file import null_masks
from trilake.lance.file.errors import WrongTypeError
from trilake.lance.file.null_masks import Masked
from trilake.lance.file.schema import Field, LanceSchema


@dataclass(frozen=True)
class View:
    """The columns of a dataset.

    ``whole`` is its schema as the manifest has it; unless ``folded``, companions are columns like others.
    """

    whole: LanceSchema
    folded: bool = True

    @cached_property
    def schema(self) -> LanceSchema:
        """The columns that users see."""
        hidden = {f.id for f in self._masks.values()}
        return LanceSchema(tuple(f for f in self.whole.fields if f.id not in hidden), self.whole.metadata)

    @cached_property
    def _masks(self) -> dict[str, Field]:
        """The companion of each column that has one."""
        return null_masks.companions(self.whole) if self.folded else {}

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema that users see."""
        return self.schema.to_arrow()

    def columns(self, names: Sequence[str] | None) -> LanceSchema:
        """Some columns (``"struct.field"`` is a part of one), or all.  Raises ``InvalidArgumentError``."""
        if isinstance(names, str):
            raise WrongTypeError(f"columns is {names!r}", help=f"pass a list of names, such as [{names!r}]")
        return self.schema if names is None else self.schema.project(names)

    def has_mask(self, name: str) -> bool:
        """Whether nulls of a column are kept by a companion."""
        return name in self._masks

    def mask_of(self, name: str) -> Field | None:
        """The companion of a column; ``None`` where it has none."""
        return self._masks.get(name)

    @cached_property
    def masked(self) -> tuple[Masked, ...]:
        """The columns with companions, by field id."""
        by_name = {f.name: f.id for f in self.whole.fields}
        return tuple(Masked(by_name[name], mask.id) for name, mask in self._masks.items())

    def stored(self, columns: LanceSchema) -> LanceSchema:
        """What must be read for some columns."""
        extra = tuple(self._masks[f.name] for f in columns.fields if f.name in self._masks)
        return LanceSchema((*columns.fields, *extra), columns.metadata) if extra else columns

    def show(self, batch: pa.RecordBatch, columns: LanceSchema) -> pa.RecordBatch:
        """A stored batch as users see it."""
        if not self._masks:
            return batch
        masks = {f.name: self._masks[f.name].name for f in columns.fields if f.name in self._masks}
        return null_masks.fold(batch, masks) if masks else batch
