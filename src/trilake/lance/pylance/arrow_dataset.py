"""What Arrow's datasets do besides being scanned; most of it in memory."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset


class ArrowDataset(pa.dataset.Dataset):  # type: ignore[misc]
    """The methods of Arrow's datasets that need no more than ``to_table``."""

    @property
    def partition_expression(self) -> pc.Expression:
        """True: Lance has no partitions."""
        return pc.scalar(True)

    def replace_schema(self, schema: pa.Schema) -> pa.dataset.Dataset:
        """The rows under another schema, in memory."""
        return pa.dataset.dataset(self.to_table(columns=schema.names).cast(schema))

    def filter(self, expression: pc.Expression) -> pa.dataset.Dataset:
        """The matching rows, in memory."""
        return pa.dataset.dataset(self.to_table(filter=expression))

    def sort_by(self, sorting: Any, **more: Any) -> pa.dataset.Dataset:
        """The rows in another order, in memory."""
        return pa.dataset.dataset(self.to_table().sort_by(sorting, **more))

    def join(self, right_dataset: Any, keys: Any, *args: Any, **more: Any) -> pa.dataset.Dataset:
        """The rows joined with those of another dataset, in memory; see Arrow's ``Table.join``."""
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join(right, keys, *args, **more))

    def join_asof(self, right_dataset: Any, on: str, by: Any, tolerance: int, **more: Any) -> pa.dataset.Dataset:
        """The rows joined with the nearest ones of another dataset, in memory; see Arrow's ``Table.join_asof``."""
        right = right_dataset.to_table() if isinstance(right_dataset, pa.dataset.Dataset) else right_dataset
        return pa.dataset.dataset(self.to_table().join_asof(right, on, by, tolerance, **more))
