"""``FragmentSession``: takes rows of one fragment, of the same columns again and again."""

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
    """Takes rows of one fragment; see :meth:`trilake.lance.fragment.LanceFragment.open_session`."""

    snapshot: Snapshot
    reader: FragmentReader
    selection: Selection

    def take(self, indices: npt.ArrayLike) -> pa.Table:
        """The rows at some places among those that live, in the order asked for.  Raises ``UnknownRowError``."""
        wanted, chosen = numbers(indices), self.selection
        if len(wanted) and (wanted.min() < 0 or wanted.max() >= self.reader.num_rows):
            raise UnknownRowError(f"the fragment has {self.reader.num_rows} rows", fragment=self.reader.fragment.id)
        view = self.snapshot.view
        plan = ScanPlan(view, chosen.columns, places=chosen.places)
        offsets = self.reader.offsets_of_live(wanted)
        stored = one_batch(self.reader.take(offsets, view.stored(plan.columns)))
        rows = finish(plan, self.reader, stored, offsets)
        return chosen.show(pa.Table.from_batches([rows]))
