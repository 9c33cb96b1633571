"""The columns of a Lance dataset or of Trevni files, which a write by position or by the name of a path goes by."""

from __future__ import annotations

import pyarrow as pa

from trilake.spark.session.engine import spark_engine
from trilake.storage.base import Store
from trilake.trevni.tables.table import TrevniTable


def other_columns(format: str, store: Store) -> pa.Schema:
    """The columns of the table of a format, ``lance`` or ``trevni``, at a store's root.

    Raises ``TableNotFoundError`` where there is none.
    """
    if format == "lance":
        from trilake.lance.table import LanceTable  # late: the libraries that it needs are an extra

        return LanceTable(store, runtime=spark_engine().runtime).schema
    return TrevniTable(store.uri, options=store.options).schema
