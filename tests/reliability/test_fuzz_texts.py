"""Damaged strings of tables, stream checkpoints and users give an answer or a typed error within seconds.

Files of Delta tables are damaged in ``tests/delta/test_damage.py``, those of Lance and Trevni in their
``test_hostile.py``.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

import pyarrow as pa
import pytest

import trilake
from tests.conftest import SOAK
from tests.delta.tables import LONG_A, log_of, metadata, protocol
from tests.mutations import mutated
from trilake.delta.commands.maintenance.convert_partitions import discover
from trilake.delta.protocol.deletion_vectors import DeletionVectorDescriptor, z85_decode, z85_encode
from trilake.delta.protocol.partitions import parse_values
from trilake.delta.protocol.property_values import duration_ms
from trilake.delta.protocol.schema import PrimitiveType, StructField, parse_schema
from trilake.delta.stream.offset import StreamOffset
from trilake.errors import TrilakeError
from trilake.expr import parse_expression, parse_filter
from trilake.sql.parser.changes import parse_delete, parse_merge, parse_update
from trilake.sql.parser.create import parse_create
from trilake.sql.parser.cursor import Cursor, SyntaxProblem
from trilake.sql.parser.maintenance import parse_maintenance
from trilake.storage.memory import MemoryStore
from trilake.storage.uri import parse_location

pytestmark = pytest.mark.long

#: The first seed, and the number of strings per kind.
FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "0"))
COUNT = int(os.environ.get("TRILAKE_FUZZ", "20000" if SOAK else "500"))
#: Seconds allowed per string on a busy machine.
_SLOW = 20.0
SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("m", pa.decimal128(10, 2)),
        ("l", pa.list_(pa.int32())),
    ]
)
ROW = pa.RecordBatch.from_pylist([{"a": 1, "s": "x", "d": None, "m": None, "l": [1, 2]}], schema=SCHEMA)
VECTOR = z85_encode(bytes(range(40)))
FILTERS = [
    "a > 5 and s like 'x%' or d is null",
    "a between 1 and 3 and not (s in ('a', 'b', null))",
    "d >= date'2020-01-01' and m < 12.50",
    "cast(a as string) = s || 'é' and element_at(l, 1) <=> 2",
    "case when a = 1 then s else substring(s, 1, 2) end = 'x'",
    "timestamp'2020-02-30 25:00:00' < current_timestamp()",
]
ARRAY = '{"type":"array","elementType":"decimal(38,18)","containsNull":true}'
OFFSET = '{"sourceVersion":1,"reservoirId":"x","reservoirVersion":3,"index":-1,"isStartingVersion":true}'
STATEMENTS = [
    "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "VACUUM t RETAIN 12.5 HOURS DRY RUN",
    "OPTIMIZE t WHERE a > 1 ZORDER BY (a, s)",
    "DELETE FROM t WHERE a IN (1, 2, 3)",
    "UPDATE t SET a = a + 1, s = 'it''s' WHERE s IS NOT NULL",
    "CREATE TABLE t (a BIGINT NOT NULL COMMENT 'x', s STRING) USING delta PARTITIONED BY (s) TBLPROPERTIES ('k'='v')",
    "RESTORE TABLE t TO VERSION AS OF 3",
    "ALTER TABLE t ADD COLUMNS (b INT AFTER a)",
]


QUERIES = [
    "SELECT a, count(*) AS n, sum(m) / 3 FROM t WHERE s LIKE 'x%' GROUP BY ROLLUP(a) HAVING n > 0 ORDER BY n LIMIT 3",
    "WITH q AS (SELECT a, l[0] AS e FROM t) SELECT q.a, t.s FROM q LEFT JOIN t USING (a) WHERE e IN (SELECT 1)",
    "SELECT a, row_number() OVER (PARTITION BY s ORDER BY a ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS r FROM t",
    "SELECT a, x, transform(l, y -> y + 1) FROM t LATERAL VIEW OUTER posexplode(l) e AS p, x",
    "SELECT * FROM (SELECT a, s FROM t) PIVOT (max(a) FOR s IN ('x' AS one, 'y')) UNION ALL SELECT 1, 2",
    "SELECT CAST(s AS DECIMAL(5, 2)), date_trunc('month', TIMESTAMP'2024-01-01'), (SELECT max(a) FROM t) FROM t",
]


def _filter(text: str) -> None:
    result = parse_filter(text, SCHEMA)
    assert result is not None
    result.apply(ROW)


def _expression(text: str) -> None:
    parse_expression(text, SCHEMA).evaluate(ROW)


def _vector(text: str) -> None:
    DeletionVectorDescriptor("i", text, 40, 3).load(MemoryStore())


def _path(text: str) -> None:
    DeletionVectorDescriptor("u", text, 40, 3, 1).load(MemoryStore())


def _constraint(text: str) -> None:
    """Use the string as a check constraint of a table that is written to."""
    store = log_of([protocol(1, 3), metadata(delta__constraints__c=text)]).store
    trilake.write(pa.table({"a": [1, 2]}), store.uri, mode="append")


def _default(text: str) -> None:
    """Use the string as the expression of a generated column."""
    schema = json.loads(LONG_A)
    field = {"name": "b", "type": "long", "nullable": True, "metadata": {"delta.generationExpression": text}}
    schema["fields"].append(field)
    store = log_of([protocol(1, 4), metadata(json.dumps(schema))]).store
    trilake.write(pa.table({"a": [1, 2]}), store.uri, mode="append")


def _partitions(text: str) -> None:
    discover([text, "year=2020/month=1"])


def _value(text: str) -> None:
    types = ("integer", "double", "decimal(10,2)", "date", "timestamp", "timestamp_ntz", "boolean", "binary")
    kind = types[zlib.crc32(text.encode()) % len(types)]  # one type per string
    parse_values(pa.chunked_array([[text]], pa.string()), StructField("p", PrimitiveType(kind)))


def _offset(text: str) -> None:
    try:
        result = json.loads(text)
    except ValueError:
        return
    StreamOffset.from_json(result)


def _statement(text: str) -> None:
    for parse in (parse_maintenance, parse_merge, parse_delete, parse_update, parse_create):
        with suppress(SyntaxProblem, TrilakeError):
            parse(Cursor(text))


def _query(text: str) -> None:
    trilake.sql(text, t=pa.Table.from_batches([ROW]))


KINDS: dict[str, tuple[Callable[[str], object], Sequence[str]]] = {
    "filter": (_filter, FILTERS),
    "expression": (_expression, [*FILTERS, "a + m * 2", "upper(s) || cast(d as string)", "named_struct('x', a)"]),
    "constraint": (_constraint, ["a > 0", "a in (1, 2) and abs(a) < 10", "cast(a as string) like '%'"]),
    "generated column": (_default, ["a + 1", "cast(a / 2 as bigint)", "coalesce(a, 0)"]),
    "statement": (_statement, STATEMENTS),
    "query": (_query, QUERIES),
    "inline vector": (_vector, [VECTOR]),
    "vector path": (_path, ["ab^-aqEH.-t@S}K{vb[*k^", f"ab{VECTOR[:20]}"]),
    "partition folder": (_partitions, ["year=2020/month=1", "p=a%20b/q=__HIVE_DEFAULT_PARTITION__", "d=2020-01-01"]),
    "partition value": (_value, ["2020-01-01", "1.5", "2020-01-01 10:00:00.123456", "-9999-12-31", "1e400", "true"]),
    "schema": (parse_schema, [LONG_A, LONG_A.replace('"long"', ARRAY)]),
    "duration": (duration_ms, ["interval 1 week", "interval 30 days 2 hours", "interval '1' day"]),
    "location": (parse_location, ["s3://bucket/a%20b", "abfss://c@a.dfs.core.windows.net/x", "file:///x", "memory://n"]),
    "offset": (_offset, [OFFSET]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_strings_raise_typed_errors_only(kind: str) -> None:
    use, samples = KINDS[kind]
    for seed in range(FIRST, FIRST + COUNT):
        random = Random(f"{kind} {seed}")
        text = _damage(random.choice(samples), random)
        began = time.monotonic()
        try:
            use(text)
        except TrilakeError:
            pass
        except BaseException as e:
            raise AssertionError(f"{kind} {seed}: {text!r} gave {type(e).__name__}: {e}") from e
        assert time.monotonic() - began < _SLOW, (kind, seed, text)


def _damage(text: str, random: Random) -> str:
    """Return the string with changed bytes, a repeated part or inserted special characters."""
    if random.random() < 0.2:
        at, end = sorted(random.sample(range(len(text) + 1), 2))
        text = text[:at] + text[at:end] * random.choice((2, 3, 50)) + text[end:]
    if random.random() < 0.2:
        at = random.randrange(len(text) + 1)
        text = (
            text[:at]
            + random.choice(("\x00", "é", "日", "\u202e", "𝔘", "'", '"', "`", "--", "/*", "((((", "\\"))
            + text[at:]
        )
    return mutated(text.encode(), random).decode("utf-8", "replace")


def test_z85_decode_raises_value_errors_only() -> None:
    for seed in range(FIRST, FIRST + COUNT):
        random = Random(seed)
        data = random.randbytes(random.randrange(0, 60))
        assert z85_decode(z85_encode(data))[: len(data)] == data
        text = "".join(chr(random.choice((35, 48, 90, 255, 0x1F600, random.randrange(128)))) for _ in range(len(data)))
        with suppress(ValueError):
            assert len(z85_decode(text)) <= len(text)
