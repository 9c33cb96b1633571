"""Spark's ``variant_get`` and ``try_variant_get`` in filters: a value inside a variant, cast to a type.

DuckDB decodes variants (``variant_bytes_to_variant``).  Each row may have another type, so there is a branch per type;
types without a supported cast are an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import sqlglot
from sqlglot import exp

from trilake.common.text import single_quoted
from trilake.errors import FilterError
from trilake.expr.sql.calls import Call
from trilake.expr.terms.casts import cast, target_type
from trilake.expr.terms.duckdb_sql import Sql, fail

#: DuckDB's types of a variant's two parts, in any order.
_PARTS = {("value", "BLOB"), ("metadata", "BLOB")}
_STEP = re.compile(r"""\.([^.\[]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")
#: Results of ``variant_typeof``, and DuckDB's types for them.
_BRANCHES = (
    ("{} LIKE 'INT%'", "BIGINT"),
    ("{} LIKE 'BOOL%'", "BOOLEAN"),
    ("{} = 'VARCHAR'", "VARCHAR"),
    ("{} = 'DOUBLE'", "DOUBLE"),
    ("{} = 'FLOAT'", "FLOAT"),
    ("{} = 'DATE'", "DATE"),
    # If the digits fit; otherwise an error, also for try_variant_get.
    ("{} LIKE 'DECIMAL%' AND TRY_CAST({} AS DECIMAL(38,18)) IS NOT NULL", "DECIMAL(38,18)"),
)
_TARGETS = ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE")


def variant_get(*, safe: bool) -> Callable[[Call], Sql]:
    """The translation of ``variant_get``, or with ``safe`` of ``try_variant_get``, which is null for values that cannot
    be cast."""

    def handle(call: Call) -> Sql:
        target = _target(call)
        value = _extracted(call)
        kind = f"variant_typeof({value})"
        branches = [f"WHEN {value} IS NULL OR {kind} = 'VARIANT_NULL' THEN NULL"]
        for condition, type_ in _BRANCHES:
            try:
                if type_.startswith("DECIMAL") and target == "VARCHAR":
                    continue  # Spark drops trailing zeros
                # Every value can be cast to a string.
                null_on_failure = safe and target != "VARCHAR"
                branch = cast(Sql(f"CAST({value} AS {type_})", type_), target, safe=null_on_failure).code
            except FilterError:
                if not safe or "DATE" not in (type_, target):
                    continue
                branch = "NULL"  # Spark cannot cast between dates and numbers
            branches.append(f"WHEN {condition.format(kind, value)} THEN {branch}")
        if safe and target != "VARCHAR":
            branches.append(f"WHEN {kind} LIKE 'OBJECT%' OR {kind} LIKE 'ARRAY%' THEN NULL")
        failed = fail(f"{call.name}: a filter cannot cast a value to {target}: its type is", kind)
        return Sql(f"(CASE {' '.join(branches)} ELSE {failed} END)", target)

    return handle


def _target(call: Call) -> str:
    sql = call.constant(2)
    try:
        node = exp.DataType.build(str(sql), dialect="databricks")
    except (sqlglot.errors.SqlglotError, ValueError) as e:
        raise FilterError(f"{sql!r} is not a Spark type") from e
    target = target_type(node)
    if target not in _TARGETS:
        raise FilterError(f"a filter cannot extract {sql} from a variant", help="compute it in Spark")
    return target


def _extracted(call: Call) -> str:
    variant, path = call.args[0], str(call.constant(1))
    parts = {(m[1].strip('"'), m[2]) for m in re.finditer(r'("?\w+"?) (\w+)', variant.type.removeprefix("STRUCT"))}
    if variant.family != "struct" or parts != _PARTS:
        raise FilterError(f"argument 1 of {call.name} must be variant, got {variant.spark_type}")
    value = f"variant_bytes_to_variant(({variant.code}).metadata || ({variant.code}).value)"
    if not path.startswith("$") or "".join(m[0] for m in _STEP.finditer(path, 1)) != path[1:]:
        raise FilterError(f"{path!r} is not a valid variant path", help="valid paths are '$.a', '$.a[0]', \"$['a b']\"")
    for step in _STEP.finditer(path, 1):
        name = next((n for n in (step[1], step[3], step[4]) if n is not None), None)
        place = single_quoted(name) if name is not None else f"{int(step[2]) + 1}::UINTEGER"  # DuckDB counts from 1
        value = f"variant_extract({value}, {place})"
    return value
