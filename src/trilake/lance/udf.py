"""Functions for ``add_columns`` under the module that users of newer pylance import them from."""

from __future__ import annotations

from trilake.lance.pylance.udf import BatchUDF, batch_udf

__all__ = ["BatchUDF", "batch_udf"]
