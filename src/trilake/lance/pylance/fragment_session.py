"""``FragmentSession``: repeated reads of rows of a fragment, with the same columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy.typing as npt
import pyarrow as pa

from trilake.lance.commands.input_rows import numbers
from trilake.lance.file.errors import UnknownRowError
from trilake.lance.scan.fragment_reader import FragmentReader
from trilake.lance.scan.projection import Selection
from trilake.lance.scan.scan import ScanPlan, finish, one_batch
from trilake.lance.scan.snapshot import Snapshot


@dataclass(frozen=True)
class FragmentSession:
    """Take rows of a fragment; see :meth:`trilake.lance.fragment.LanceFragment.open_session`."""

    snapshot: Snapshot
    reader: FragmentReader
    selection: Selection

    def take(self, indices: npt.ArrayLike) -> pa.Table:
        """Return the rows at the given positions, in the given order.  Raises ``UnknownRowError``."""
        positions, selection = numbers(indices), self.selection
        if len(positions) and (positions.min() < 0 or positions.max() >= self.reader.num_rows):
            raise UnknownRowError(
                f"a row index is out of range: the fragment has {self.reader.num_rows} rows",
                fragment=self.reader.fragment.id,
            )
        view = self.snapshot.view
        plan = ScanPlan(view, selection.columns, places=selection.places)
        offsets = self.reader.offsets_of_live(positions)
        stored = one_batch(self.reader.take(offsets, view.stored(plan.columns)))
        rows = finish(plan, self.reader, stored, offsets)
        return selection.show(pa.Table.from_batches([rows]))
