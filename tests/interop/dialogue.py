"""Steps that two implementations of Lance take on one dataset in turn; both must read the same after each.

Runs under any Python that has the implementation, so it uses only pyarrow and that module.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

COUNT = 500


def rows(start: int = 0, count: int = COUNT, *, dictionary: bool = True) -> pa.Table:
    """Rows of every type that both implementations support, without nulls."""
    table = _rows(start, count)
    return table if dictionary else table.drop_columns(["kind"])


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    vectors = pa.array([float(i % 97) for i in ids for _ in range(4)], pa.float32())
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "flag": pa.array([i % 3 == 0 for i in ids]),
            "x": pa.array([i / 8 for i in ids], pa.float64()),
            "name": pa.array([f"name {i}" for i in ids]),
            "raw": pa.array([bytes([i % 256, 1]) for i in ids], pa.binary()),
            "day": pa.array(ids, pa.date32()),
            "at": pa.array([i * 10**6 for i in ids], pa.timestamp("us")),
            "tags": pa.array([[f"t{j}" for j in range(i % 4)] for i in ids], pa.list_(pa.string())),
            "s": pa.array([{"a": i, "b": {"c": str(i)}} for i in ids]),
            "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
            "kind": pa.DictionaryArray.from_arrays(
                pa.array([i % 3 for i in ids], pa.int32()), pa.array(["red", "green", "blue"])
            ),
        }
    )


def write(lance: Any, uri: str, *, dictionary: bool = True, **more: Any) -> None:
    """Create a dataset of five files."""
    lance.write_dataset(rows(dictionary=dictionary), uri, max_rows_per_file=100, max_rows_per_group=25, **more)


def append(lance: Any, uri: str) -> None:
    """Add rows with ids that follow."""
    table = lance.dataset(uri).to_table(columns=["id"])
    start = max(table["id"].to_pylist()) + 1
    more = rows(start, 60, dictionary="kind" in lance.dataset(uri).schema.names)
    for name in lance.dataset(uri).schema.names[more.num_columns :]:
        more = more.append_column(name, pa.array([f"{name} {i}" for i in range(start, start + 60)]))
    lance.write_dataset(more, uri, mode="append", max_rows_per_group=25)


def delete(lance: Any, uri: str) -> None:
    """Delete some rows of every file, and one whole file."""
    lance.dataset(uri).delete("id % 10 = 7")
    lance.dataset(uri).delete("id >= 100 AND id < 200")


def delete_many(lance: Any, uri: str) -> None:
    """Delete a string, so that filters on strings agree."""
    lance.dataset(uri).delete("name = 'name 250' OR x > 60")


def update(lance: Any, uri: str) -> None:
    """Move rows to a new file."""
    lance.dataset(uri).update({"name": "'changed'"}, where="id < 12")


def merge(lance: Any, uri: str) -> None:
    """Add a column in a separate file."""
    name = f"m{len(lance.dataset(uri).schema)}"
    keys = range(0, 2000, 2)
    lance.dataset(uri).merge(pa.table({"id": pa.array(keys, pa.int64()), name: [f"{name} {i}" for i in keys]}), "id")


def compact(lance: Any, uri: str) -> None:
    """Join all files."""
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=10_000)


def compact_small(lance: Any, uri: str) -> None:
    """Join small files, also between larger ones."""
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=70)


def restore(lance: Any, uri: str) -> None:
    """Go back to the first version."""
    lance.dataset(uri, version=1).restore()


STEPS = {
    "append": append,
    "delete": delete,
    "delete_many": delete_many,
    "update": update,
    "merge": merge,
    "compact": compact,
    "compact_small": compact_small,
    "restore": restore,
}


def state(lance: Any, uri: str, version: int | None = None) -> pa.Table:
    """All rows of a version, in an order and with dictionaries that do not depend on the reader."""
    table = lance.dataset(uri, version=version).to_table()
    if "kind" in table.schema.names:
        i = table.schema.get_field_index("kind")
        table = table.set_column(i, "kind", table["kind"].cast(pa.string()))
    return table.combine_chunks()
