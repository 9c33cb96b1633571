"""The conflict table, and the effect of each operation on a manifest: pure functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

from trilake.errors import ConflictError, InvalidArgumentError
from trilake.lance.file.schema import LanceSchema
from trilake.lance.versions import operations as op
from trilake.lance.versions.effects import apply
from trilake.lance.versions.manifest import WRITER, DataFile, DeletionFile, Fragment, IndexMetadata, Manifest

SCHEMA = LanceSchema.from_arrow(pa.schema({"a": pa.int64()}))
OTHER = LanceSchema.from_arrow(pa.schema({"b": pa.int64()}), 7)


def fragment(id: int, *, path: str = "x", deleted: bool = False) -> Fragment:
    return Fragment(id, (DataFile(path, (0,)),), DeletionFile(0, 1, 1, 1) if deleted else None, 10)


OPERATIONS: dict[str, op.Operation] = {
    "append": op.Append((fragment(0),)),
    "delete": op.Delete((fragment(1),), (2,), "x"),
    "update": op.Update((2,), (fragment(1),), (fragment(0),)),
    "overwrite": op.Overwrite((), SCHEMA),
    "index": op.CreateIndex((IndexMetadata(UUID(int=1), (0,), "i", 1),)),
    "rewrite": op.Rewrite((op.RewriteGroup((fragment(1), fragment(2)), (fragment(9),)),)),
    "merge": op.Merge((fragment(1),), SCHEMA),
    "restore": op.Restore(1),
    "reserve": op.ReserveFragments(2),
}
#: The behaviour of pylance 0.8.19 with stale handles (facts/lance.md), except for two cells: a delete or
#: an update does not follow an update that adds rows ("new"), as it does not follow an append, and an index does not
#: follow one of its name ("ids").
TABLE = """
          append delete update overwrite index rewrite merge restore reserve
append    ok     ok     ok     X         ok    ok      X     X       ok
delete    X      ids    new    X         ok    ids     X     X       ok
update    X      ids    new    X         ok    ids     X     X       ok
overwrite ok     ok     ok     ok        ok    ok      ok    ok      ok
restore   ok     ok     ok     ok        ok    ok      ok    ok      ok
index     ok     ok     ok     X         ids   X       ok    X       ok
rewrite   ok     ids    ids    X         X     ids     X     X       ok
merge     X      X      X      X         ok    X       X     X       ok
reserve   ok     ok     ok     X         ok    ok      ok    X       ok
"""
LINES = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [(row[0], theirs, rule) for row in LINES[1:] for theirs, rule in zip(LINES[0], row[1:], strict=True)]


def elsewhere(operation: op.Operation) -> op.Operation:
    """The same operation on other fragments, or with another name."""
    match operation:
        case op.CreateIndex():
            return op.CreateIndex((IndexMetadata(UUID(int=2), (0,), "other", 1),))
        case op.Delete():
            return op.Delete((fragment(11),), (12,), "x")
        case op.Update():
            return op.Update((12,), (fragment(11),), (fragment(0),))
        case op.Rewrite():
            return op.Rewrite((op.RewriteGroup((fragment(11), fragment(12)), (fragment(19),)),))
    return operation


@pytest.mark.parametrize(("mine", "theirs", "rule"), CELLS)
def test_conflict_table(mine: str, theirs: str, rule: str) -> None:
    assert len(CELLS) == 81
    found = op.conflict(OPERATIONS[mine], OPERATIONS[theirs])
    assert (found is None) == (rule == "ok")
    apart = op.conflict(OPERATIONS[mine], elsewhere(OPERATIONS[theirs]))
    assert (apart is None) == (rule in ("ok", "ids"))
    if rule == "new":
        same, other = op.Update((2,), (fragment(1),), ()), op.Update((12,), (fragment(11),), ())
        assert op.conflict(OPERATIONS[mine], same) is not None
        assert op.conflict(OPERATIONS[mine], other) is None


def replacement(fragment_id: int, *fields: int) -> op.DataReplacement:
    return op.DataReplacement(((fragment_id, DataFile("y", fields)),))


#: What a replacement of fields 1 and 2 of fragment 1 may follow: the behaviour of pylance 14.0.2.
REPLACED: list[tuple[op.Operation, bool]] = [
    (OPERATIONS["index"], True),
    (op.CreateIndex((IndexMetadata(UUID(int=1), (2,), "i", 1),)), False),
    (op.CreateIndex((IndexMetadata(UUID(int=1), (0,), "i", 1), IndexMetadata(UUID(int=2), (1,), "j", 1))), False),
    (replacement(1, 0), True),
    (replacement(1, 0, 2), False),
    (replacement(2, 1, 2), True),
    (OPERATIONS["delete"], True),
    (OPERATIONS["update"], False),
    (OPERATIONS["rewrite"], False),
]


@pytest.mark.parametrize(("theirs", "follows"), REPLACED)
def test_replaced_files_conflict_with_changes_of_the_same_columns(theirs: op.Operation, follows: bool) -> None:
    assert (op.conflict(replacement(1, 1, 2), theirs) is None) == follows


def test_files_of_a_deleted_fragment_cannot_be_replaced() -> None:
    newest = Manifest(2, SCHEMA, (fragment(1, deleted=True),))
    following = apply(newest, replacement(1, 0), file="f", now_ns=0)
    assert following.fragments[0].deletion_file == newest.fragments[0].deletion_file
    assert [f.path for f in following.fragments[0].files] == ["y"]
    with pytest.raises(ConflictError, match="fragment 2 no longer exists"):
        apply(newest, replacement(2, 0), file="f", now_ns=0)


@pytest.mark.parametrize("mine", OPERATIONS)
def test_unknown_operations_conflict_except_with_overwrite(mine: str) -> None:
    found = op.conflict(OPERATIONS[mine], op.Unknown(119))
    assert (found is None) == (mine in ("overwrite", "restore"))


@pytest.mark.parametrize("writes", ["append", "update"])
@pytest.mark.parametrize("change", [op.Project, lambda schema: op.Merge((), schema)], ids=["project", "merge"])
def test_nulls_conflict_with_a_column_made_non_nullable(
    writes: str, change: Callable[[LanceSchema], op.Operation]
) -> None:
    strict = change(LanceSchema.from_arrow(pa.schema([pa.field("a", pa.int64(), nullable=False)])))
    assert "non-nullable" in (op.conflict(strict, OPERATIONS[writes], SCHEMA) or "")
    assert "non-nullable" in (op.conflict(OPERATIONS[writes], strict, SCHEMA) or "")
    assert op.conflict(op.Project(SCHEMA), OPERATIONS["append"], SCHEMA) is None


def test_index_and_rewrite_of_other_fragments_follow_each_other() -> None:
    def index(*ids: int) -> op.Operation:
        return op.CreateIndex((IndexMetadata(UUID(int=1), (0,), "i", 1, FrozenBitMap(ids)),))

    rewrite = OPERATIONS["rewrite"]  # of fragments 1 and 2
    for other, follows in ((index(0, 3), True), (index(0, 2), False), (op.CreateIndex(()), True)):
        assert (op.conflict(other, rewrite) is None, op.conflict(rewrite, other) is None) == (follows, follows)


def test_append_does_not_follow_a_cast_of_its_column() -> None:
    """The values for the former column were lost: the rows had nulls."""
    append = op.Append((Fragment(0, (DataFile("x", (0,), 2, 0),), None, 10),))
    cast = op.Merge((), LanceSchema.from_arrow(pa.schema({"a": pa.float64()}), 1))
    assert "former column 'a'" in (op.conflict(append, cast, SCHEMA) or "")
    assert op.conflict(append, op.Merge((), OTHER), SCHEMA) is None


def base(*fragments: Fragment, **more: object) -> Manifest:
    highest = max([-1, *(f.id for f in fragments)])
    return replace(Manifest(5, SCHEMA, fragments, max_fragment_id=highest), **more)  # type: ignore[arg-type]


def done(newest: Manifest | None, operation: op.Operation, old: Manifest | None = None) -> Manifest:
    return apply(newest, operation, file="t", now_ns=77, old=old)


def ids(manifest: Manifest) -> list[int]:
    return [f.id for f in manifest.fragments]


def test_first_version() -> None:
    dataset = done(None, op.Overwrite((fragment(0), fragment(0)), SCHEMA))
    assert (dataset.version, ids(dataset), dataset.max_fragment_id) == (1, [0, 1], 1)
    assert (dataset.timestamp_ns, dataset.transaction_file, dataset.writer_version) == (77, "t", WRITER)
    assert (dataset.reader_feature_flags, dataset.writer_feature_flags) == (0, 0)
    with pytest.raises(InvalidArgumentError):
        done(None, op.Append(()))


def test_append_continues_fragment_ids() -> None:
    dataset = done(base(fragment(0), fragment(4), max_fragment_id=6), op.Append((fragment(0), fragment(0))))
    assert (ids(dataset), dataset.max_fragment_id, dataset.version) == ([0, 4, 7, 8], 8, 6)
    assert ids(done(base(), op.Append((fragment(0),)))) == [0]


def test_fragment_id_in_an_index_is_not_reused() -> None:
    index = IndexMetadata(UUID(int=1), (0,), "i", 1, FrozenBitMap([0]))
    assert ids(done(base(indices=(index,)), op.Append((fragment(0),)))) == [1]


def test_delete_and_update() -> None:
    newest = base(fragment(0), fragment(1), fragment(2))
    dataset = done(newest, op.Delete((fragment(1, deleted=True),), (0,), "x"))
    assert (ids(dataset), dataset.reader_feature_flags, dataset.writer_feature_flags) == ([1, 2], 1, 1)
    dataset = done(newest, op.Update((0,), (fragment(1, deleted=True),), (fragment(0, path="new"),)))
    assert ids(dataset) == [1, 2, 3]
    assert dataset.fragments[-1].files[0].path == "new"
    with pytest.raises(ConflictError, match="fragment 9 no longer exists"):
        done(newest, op.Delete((), (9,), "x"))


def test_deletion_flag_is_cleared_with_the_last_file() -> None:
    newest = base(fragment(0, deleted=True), fragment(1), reader_feature_flags=1, writer_feature_flags=1)
    dataset = done(newest, op.Delete((), (0,), "x"))
    assert (dataset.reader_feature_flags, dataset.writer_feature_flags) == (0, 0)


def test_overwrite_restarts_ids_and_keeps_the_maximum() -> None:
    index = IndexMetadata(UUID(int=1), (0,), "i", 1, FrozenBitMap([0]))
    dataset = done(base(fragment(0), fragment(3), indices=(index,)), op.Overwrite((fragment(0),), OTHER))
    assert (ids(dataset), dataset.max_fragment_id, dataset.schema, dataset.indices) == ([0], 3, OTHER, ())


def test_restore_keeps_the_highest_ids() -> None:
    old = base(fragment(0), version=2, tag="x")
    dataset = done(base(fragment(8)), op.Restore(2), old)
    assert (ids(dataset), dataset.max_fragment_id, dataset.version, dataset.tag) == ([0], 8, 6, "")
    assert ids(done(dataset, op.Append((fragment(0),)))) == [0, 9]


def test_create_index_replaces_by_name_and_id() -> None:
    one, two, three = (IndexMetadata(UUID(int=i), (0,), n, 1) for i, n in ((1, "a"), (2, "b"), (3, "a")))
    newest = base(fragment(0), indices=(one, two))
    assert done(newest, op.CreateIndex((three,))).indices == (two, three)
    assert done(newest, op.CreateIndex((), (two,))).indices == (one,)
    with pytest.raises(ConflictError, match="dropped"):
        done(newest, op.CreateIndex((replace(three, fields=(9,)),)))


def test_merge_drops_indices_of_dropped_columns() -> None:
    index = IndexMetadata(UUID(int=1), (0,), "a", 1)
    dataset = done(base(fragment(2), indices=(index,)), op.Merge((fragment(2, path="y"),), OTHER))
    assert (dataset.indices, ids(dataset), dataset.schema) == ((), [2], OTHER)


def test_fragments_are_ordered_by_id() -> None:
    newest = base(*map(fragment, range(5)), max_fragment_id=20)
    group = op.RewriteGroup((fragment(1), fragment(2)), (fragment(10), fragment(11)))
    assert ids(done(newest, op.Rewrite((group,)))) == [0, 3, 4, 10, 11]
    apart = op.RewriteGroup((fragment(1), fragment(3)), (fragment(10),))
    assert ids(done(newest, op.Rewrite((apart,)))) == [0, 2, 4, 10]
    with pytest.raises(ConflictError):
        done(newest, op.Rewrite((op.RewriteGroup((fragment(9),), (fragment(10),)),)))
    older = replace(newest, fragments=tuple(map(fragment, (0, 7, 3))))  # as pylance 0.8 writes them
    assert ids(done(older, op.Append((fragment(0),)))) == [0, 3, 7, 21]


def test_rewrite_remaps_indices_or_reduces_coverage() -> None:
    def index(id: int, *covered: int) -> IndexMetadata:
        return IndexMetadata(UUID(int=id), (0,), f"i{id}", 1, FrozenBitMap(covered))

    newest = base(*map(fragment, range(5)), indices=(index(1, 0, 1, 2), index(2, 4), index(3, 1)), max_fragment_id=20)
    group = op.RewriteGroup((fragment(1), fragment(2)), (fragment(10),))
    dataset = done(newest, op.Rewrite((group,), (op.RewrittenIndex(UUID(int=1), UUID(int=100)),)))
    assert [(i.uuid.int, i.fragment_bitmap) for i in dataset.indices] == [
        (100, FrozenBitMap([0, 10])),
        (2, FrozenBitMap([4])),
        (3, FrozenBitMap([])),
    ]


def test_new_version_drops_the_previous_transaction() -> None:
    newest = base(fragment(0), transaction=b"of the version before")
    assert done(newest, op.ReserveFragments(1)).transaction is None
    assert done(newest, op.Restore(1), old=newest).transaction is None


def test_reserve_fragments() -> None:
    assert done(base(fragment(3)), op.ReserveFragments(4)).max_fragment_id == 7
