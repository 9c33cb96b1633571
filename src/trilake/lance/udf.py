"""Re-exports for ``import lance.udf``."""

from __future__ import annotations

from trilake.lance.pylance.udf import BatchUDF, batch_udf

__all__ = ["BatchUDF", "batch_udf"]
