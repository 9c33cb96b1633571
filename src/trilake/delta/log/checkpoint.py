"""Read checkpoints: single-file, multi-part, and v2 with sidecars, in Parquet or JSON.

Protocol: *Checkpoints*.  File actions stay Arrow columns; the few other actions become JSON objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
import pyarrow as pa

from trilake.common.compute import pc
from trilake.delta.log.checkpoint_selection import Selected, Selection, batches, select
from trilake.delta.log.checkpoint_stats import stats_json
from trilake.delta.log.segment import LARGE_FILES, SIDECARS, LogSegment
from trilake.delta.log.snapshot import State, apply, empty_state, reject_keys_twice
from trilake.delta.protocol.actions import (
    EMPTY_BATCH,
    FILE_ACTIONS,
    RARE_ACTIONS,
    ActionBatch,
    no_rows,
    parse_commits,
    parse_rare,
)
from trilake.errors import CorruptLogError, ObjectNotFoundError, TrilakeError
from trilake.expr.terms.engine import Query
from trilake.parquet.files import DAMAGE, Footer, checked_footer, fetched_together, open_parquet
from trilake.parquet.old_calendar import rebasing_of
from trilake.storage.base import Store

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_BATCH_ROWS = 128 * 1024
#: Tags of ``checkpointMetadata``: the numbers of sidecars and files, by which a reader detects a lost line.
SIDECARS_TAG, ADDS_TAG = "trilake.sidecars", "trilake.numOfAddFiles"
#: The fields that identify the file of an ``add`` action.
KEY_FIELDS = frozenset({"path", "size", "dataChange", "deletionVector"})
#: Assumed bytes of one file action in a checkpoint that does not state the number of its actions.
FILE_BYTES = 256
_NO_ACTIONS = {kind: no_rows(pa.schema(list(type_))) for kind, type_ in FILE_ACTIONS.items()}


def read_checkpoint(store: Store, segment: LogSegment, query: Query) -> State:
    """Read the state in the segment's checkpoint, without its tombstones.  Raises ``CorruptLogError``."""
    if segment.checkpoint_version is None:
        return empty_state()
    rare: list[tuple[str, Any]] = []
    adds = pa.concat_tables([_NO_ACTIONS["add"], *checkpoint_pieces(store, segment, query, rare=rare)])
    reject_keys_twice(adds, segment.checkpoint_files[0].key, segment.checkpoint_version, query)
    return replace(apply(empty_state(), _batch(segment.checkpoint_version, rare)), adds=adds)


def checkpoint_pieces(
    store: Store,
    segment: LogSegment,
    query: Query,
    kind: str = "add",
    rare: list[tuple[str, Any]] | None = None,
    selection: Selection | None = None,
) -> Iterator[pa.Table]:
    """Yield the file actions of one kind (``add`` or ``remove``) in the segment's checkpoint, piece by piece.

    The checkpoint's other actions are appended to ``rare``.  With a ``selection``, other ``add`` actions may be
    skipped, unread if possible.  Raises ``CorruptLogError``; a lost line is only detected after the last piece.
    """
    version = segment.checkpoint_version
    if version is None:
        return
    others: list[tuple[str, Any]] = [] if rare is None else rare

    def pieces() -> Iterator[tuple[pa.Table, int]]:
        for file in segment.checkpoint_files:
            yield from Share(file.key, version).selected_pieces(store, query, kind, selection=selection, rare=others)
        for sidecar in [d for n, d in others if n == "sidecar"]:
            yield from Share.of_sidecar(sidecar, version).selected_pieces(store, query, kind, selection=selection)

    count = size = skipped = 0
    for piece, skipped_here in pieces():
        count += piece.num_rows
        size += int(pc.sum(piece["size"]).as_py() or 0)
        skipped += skipped_here
        yield piece
    if kind == "add":
        compare(store, segment, count + skipped, None if skipped else size, others)


@dataclass(frozen=True)
class Share:
    """Part ``number`` of the ``of`` parts of one checkpoint file, split by row groups; any process can read it.

    ``size`` is the file's expected size, ``listed`` its size in the listing, ``files`` its number of files, if known.
    """

    key: str
    version: int
    size: int | None = None
    listed: int = 0
    files: int | None = None
    number: int = 0
    of: int = 1

    @staticmethod
    def of_sidecar(sidecar: Mapping[str, Any], version: int, files: int | None = None) -> Share:
        """The share that is a whole sidecar.  Raises ``CorruptLogError`` for a malformed action."""
        size = sidecar.get("sizeInBytes")
        key = _sidecar_key(str(sidecar.get("path") or ""), version)
        return Share(key, version, size if isinstance(size, int) else None, files=files)

    def pieces(
        self,
        store: Store,
        query: Query | None,
        kind: str = "add",
        only: frozenset[str] | None = None,
        rare: list[tuple[str, Any]] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the share's file actions of one kind, piece by piece, after appending all other actions to ``rare``.

        Without a ``query``, only ``rare`` is filled.  ``only`` are the fields to read, at least those of
        :data:`KEY_FIELDS`.  Raises ``CorruptLogError``.
        """
        return (piece for piece, _ in self.selected_pieces(store, query, kind, only, rare=rare))

    def selected_pieces(
        self,
        store: Store,
        query: Query | None,
        kind: str = "add",
        only: frozenset[str] | None = None,
        selection: Selection | None = None,
        rare: list[tuple[str, Any]] | None = None,
    ) -> Iterator[tuple[pa.Table, int]]:
        """Like :meth:`pieces`, but other ``add`` actions than those of ``selection`` may be skipped; each piece has the
        number of files that were."""
        key, rare = self.key, [] if rare is None else rare
        where: dict[str, Any] = {"file": f"{store.uri}/{key}", "version": self.version}
        try:
            if key.endswith(".json"):
                content = [(self.version, f"{store.uri}/{key}", store.read(key))]
                batch = parse_rare(content) if query is None else parse_commits(content, query)
                rare += [(n, d) for _, n, d in batch.rare]
                if query is not None:
                    yield (batch.remove if kind == "remove" else batch.add).drop_columns(["version", "order"]), 0
                return
            with store.open_input(key) as source:
                if self.size is not None and self.size > 0 and self.size != source.size():
                    raise ValueError(f"it has {source.size()} bytes, but the checkpoint says {self.size}")
                part = _ParquetPart.of(source)
                names = set(part.file.schema_arrow.names)
                # A v1 checkpoint without a column of files would read as an empty table.
                if "metaData" in names and not names & {"add", "checkpointMetadata", "sidecar"}:
                    raise ValueError("it has no column 'add'")
                for f in part.file.schema_arrow:
                    if f.name in (*FILE_ACTIONS, *RARE_ACTIONS) and not (
                        pa.types.is_struct(f.type) or pa.types.is_null(f.type)
                    ):
                        raise ValueError(f"its column {f.name!r} must be a struct, got {f.type}")
                rare += _read_rare(part)
                if query is not None and kind in names:
                    yield from _read_actions(part, self, query, kind, only, selection)
        except ObjectNotFoundError as e:
            message = "a checkpoint file is missing"
            raise CorruptLogError(message, help="restore the file from a backup", **where) from e
        except (*DAMAGE, OSError, TypeError, AttributeError) as e:
            # A damaged footer or schema raises many kinds of errors.
            if isinstance(e, TrilakeError):
                raise
            help = "restore the file from a backup, or restore all commits before it"
            raise CorruptLogError(f"the checkpoint cannot be read: {e}", help=help, **where) from e

    def groups(self, groups: list[int]) -> list[int]:
        """The row groups of the file that belong to this share; they are adjacent."""
        first, end = (len(groups) * n // self.of for n in (self.number, self.number + 1))
        return groups[first:end]

    @property
    def bytes(self) -> int:
        """The approximate size of the share."""
        return (self.size or self.listed) // self.of

    @property
    def expected(self) -> int:
        """The approximate number of actions."""
        return self.bytes // FILE_BYTES if self.files is None else self.files // self.of


def shares(segment: LogSegment, rare: Sequence[tuple[str, Any]], most_bytes: int) -> list[Share]:
    """Split a checkpoint with the other actions ``rare`` into shares; after reading all, call :func:`compare`."""
    version = segment.checkpoint_version
    if version is None:
        return []
    files = [Share(f.key, version, listed=f.size) for f in segment.checkpoint_files]
    files += [Share.of_sidecar(d, version) for n, d in rare if n == "sidecar"]
    out = []
    for file in files:
        of = 1 if file.key.endswith(".json") else max(1, -(-file.bytes // most_bytes))
        out += [replace(file, number=number, of=of) for number in range(of)]
    return out


def counted(segment: LogSegment) -> int:
    """The approximate number of files in a large checkpoint."""
    if segment.hint is not None and segment.hint.num_add_files is not None:
        return segment.hint.num_add_files
    return max(LARGE_FILES, sum(f.size for f in segment.checkpoint_files) // FILE_BYTES)


def compare(store: Store, segment: LogSegment, count: int, size: int | None, rare: Sequence[tuple[str, Any]]) -> None:
    """Raise ``CorruptLogError`` unless the files that were read match what the checkpoint and the log state."""
    names = [unquote(str(d.get("path") or "")).rpartition("/")[2] for n, d in rare if n == "sidecar"]
    differences: list[str] = []
    if (hint := segment.hint) is not None:
        wrong_in_hint = hint.differences(segment.checkpoint_files, names, count)
        differences += [f"_last_checkpoint says {d}" for d in wrong_in_hint]
    if segment.checksum is not None and (hint is None or hint.num_add_files is None):
        differences += _differences_of_checksum(store, segment.checksum.key, count, size)
    for data in (d for n, d in rare if n == "checkpointMetadata"):
        tags = tags_of(data)
        expected = {"version": data.get("version")} | {t: tags[t] for t in (SIDECARS_TAG, ADDS_TAG) if t in tags}
        true = {"version": segment.checkpoint_version, SIDECARS_TAG: str(len(names)), ADDS_TAG: str(count)}
        wrong = [(k, v) for k, v in expected.items() if v != true[k]]
        differences += [f"its checkpointMetadata says {k} {v!r}, not {true[k]!r}" for k, v in wrong]
    if differences:
        raise CorruptLogError(
            f"the checkpoint does not match its hint: {'; '.join(differences)[:500]}",
            help="restore the checkpoint from a backup, or remove the hint or checksum if it is wrong",
            file=f"{store.uri}/{segment.checkpoint_files[0].key}",
            version=segment.checkpoint_version,
        )


def _differences_of_checksum(store: Store, key: str, count: int, size: int | None) -> list[str]:
    try:
        content = orjson.loads(bytes(store.read(key)))
        counts = {name: content[name] for name in ("numFiles", "tableSizeBytes")}
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return []
    true = {"numFiles": count, "tableSizeBytes": size}
    return [
        f"{key} says {name} {value}, not {true[name]}"
        for name, value in counts.items()
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0 and true[name] not in (None, value)
    ]


def tags_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """The ``tags`` of an action: a JSON object, or an Arrow map as a list of pairs."""
    value = action.get("tags")
    if isinstance(value, dict):
        return {str(k): v for k, v in value.items()}
    return {str(p[0]): p[1] for p in value if isinstance(p, tuple)} if isinstance(value, list) else {}


def read_checkpoint_rare(store: Store, segment: LogSegment) -> State:
    """Read the state in the segment's checkpoint without any file action."""
    return apply(empty_state(), _batch(segment.checkpoint_version, checkpoint_actions(store, segment)))


def read_checkpoint_tombstones(store: Store, segment: LogSegment, query: Query) -> pa.Table:
    """Read the ``remove`` actions of the segment's checkpoint."""
    return pa.concat_tables([_NO_ACTIONS["remove"], *checkpoint_pieces(store, segment, query, "remove")])


def sidecar_keys(store: Store, segment: LogSegment) -> list[str]:
    """The keys of the sidecars that the segment's checkpoint names."""
    rare = checkpoint_actions(store, segment)
    return [_sidecar_key(str(d.get("path") or ""), segment.version) for n, d in rare if n == "sidecar"]


def _batch(version: int | None, rare: Sequence[tuple[str, Any]]) -> ActionBatch:
    return replace(EMPTY_BATCH, rare=tuple((version or 0, n, d) for n, d in rare))


def checkpoint_actions(store: Store, segment: LogSegment) -> list[tuple[str, Any]]:
    """The actions of the segment's checkpoint that are not file actions, ``sidecar`` actions included."""
    rare: list[tuple[str, Any]] = []
    for file in segment.checkpoint_files:
        assert segment.checkpoint_version is not None
        for _ in Share(file.key, segment.checkpoint_version).pieces(store, None, rare=rare):
            pass
    return rare


def _sidecar_key(path: str, version: int) -> str:
    name = unquote(path).rpartition("/")[2]
    if not name:
        raise CorruptLogError("the checkpoint names a sidecar without a path", version=version)
    return f"{SIDECARS}/{name}"


@dataclass(frozen=True)
class _ParquetPart:
    """An open Parquet file of a checkpoint."""

    source: pa.NativeFile
    file: pq.ParquetFile
    footer: Footer

    @classmethod
    def of(cls, source: pa.NativeFile) -> _ParquetPart:
        file = open_parquet(source)
        return cls(source, file, checked_footer(source, file))

    def batches(self, groups: list[int], columns: list[str], *, threads: bool = True) -> Iterator[pa.RecordBatch]:
        """Read row groups, a few at a time."""
        for run in fetched_together(self.source, self.file, groups, columns):
            yield from batches(self.file, _BATCH_ROWS, row_groups=run, columns=columns, use_threads=threads)


def _read_rare(part: _ParquetPart) -> list[tuple[str, Any]]:
    present = set(part.file.schema_arrow.names)
    requested = [n for n in RARE_ACTIONS if n in present and n != "commitInfo"]
    rare: list[tuple[str, Any]] = []
    for batch in part.batches(_groups_with(part.footer, requested), requested, threads=False):
        for name in requested:
            rows = batch.column(batch.schema.get_field_index(name)).drop_null().to_pylist()
            values = ({k: v for k, v in row.items() if v is not None} for row in rows)
            # Some writers write a struct of nulls for "no actions".
            rare += [(name, row) for row in values if not _is_empty(row)]
    return rare


def _is_empty(value: Any) -> bool:
    """Whether a struct holds only nulls, empty maps and empty lists, at every depth."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value is None or value == []


def _groups_with(footer: Footer, names: Sequence[str]) -> list[int]:
    """The row groups that may hold an action of these names.

    Every action has a required field outside lists, so a row group in which all of these fields are null has no action.
    """
    requested = frozenset(names)
    columns = footer[0] if footer else ()
    leaves = [i for i, c in enumerate(columns) if not c.repeated and c.path.partition(".")[0] in requested]
    return [g for g, chunks in enumerate(footer) if any(chunks[i].null_count != chunks[i].num_values for i in leaves)]


def _read_actions(
    part: _ParquetPart, share: Share, query: Query, kind: str, only: frozenset[str] | None, selection: Selection | None
) -> Iterator[tuple[pa.Table, int]]:
    fields = part.file.schema_arrow.field(kind).type
    if pa.types.is_null(fields):  # written from rows without such actions
        return
    columns = [f"{kind}.{f.name}" for f in fields if f.name in (only or FILE_ACTIONS[kind].names)]
    if only is None and "stats_parsed" in fields.names and _needs_parsed_stats(part.footer, fields):
        columns.append(f"{kind}.stats_parsed")
    groups = share.groups(_groups_with(part.footer, [kind]))
    rebasing = rebasing_of(part.file)
    if selection is not None and kind == "add" and rebasing is None:
        selected = select(part.source, part.file, part.footer, groups, selection, _BATCH_ROWS)
        if selected is not None:
            yield from _read_selected(part, query, selected, columns)
            return
    # Piece by piece: the raw column and its actions are never whole in memory at once.
    for batch in part.batches(groups, columns):
        rows = batch if rebasing is None else rebasing.rows(batch)
        yield _file_actions(pa.Table.from_batches([rows]), query, kind, only), 0


def _read_selected(
    part: _ParquetPart, query: Query, selected: Selected, columns: list[str]
) -> Iterator[tuple[pa.Table, int]]:
    skipped = selected.files
    for run in fetched_together(part.source, part.file, list(selected.groups), columns):
        for group in run:
            rows, start = selected.groups[group], 0
            for batch in batches(part.file, _BATCH_ROWS, row_groups=[group], columns=columns, use_threads=True):
                mask = rows[start : start + batch.num_rows]
                start += batch.num_rows
                if mask.any():
                    piece = _file_actions(pa.Table.from_batches([batch]).filter(pa.array(mask)), query, "add")
                    skipped -= piece.num_rows
                    yield piece, 0
    yield _NO_ACTIONS["add"], skipped


def _needs_parsed_stats(footer: Footer, fields: pa.StructType) -> bool:
    """Whether some rows have statistics only in ``stats_parsed`` (``writeStatsAsJson=false``)."""
    if "stats" not in fields.names:
        return True
    leaves = {c.path: i for i, c in enumerate(footer[0])} if footer else {}
    for chunks in footer:
        text, path = (chunks[leaves[f"add.{name}"]].null_count for name in ("stats", "path"))
        if text is None or path is None or text > path:  # an add without a string
            return True
    return False


def _file_actions(table: pa.Table, query: Query, kind: str, only: frozenset[str] | None = None) -> pa.Table:
    """The file actions of one kind, with all fields or ``only`` some; fields that the writer left out are null."""
    type_ = FILE_ACTIONS[kind]
    if only is not None:
        type_ = pa.struct([f for f in type_ if f.name in only])
    if kind not in table.column_names:
        return _NO_ACTIONS[kind]
    column = table[kind]
    mask = pc.is_valid(column)
    if pc.all(mask).as_py() is False:
        column = column.filter(mask)
    have = set(column.type.names)
    arrays = [
        _conform(pc.struct_field(column, f.name), f.type) if f.name in have else pa.nulls(len(column), f.type)
        for f in type_
    ]
    out = pa.Table.from_arrays(arrays, schema=pa.schema(list(type_)))
    out.validate(full=True)  # Parquet does not check that strings are UTF-8
    if out["path"].null_count:
        # A struct of nulls means "no action" to some writers; with any content it is a truncated action.
        nameless = out.filter(pc.is_null(out["path"]))
        if nameless["size"].null_count < len(nameless) or nameless["dataChange"].null_count < len(nameless):
            raise ValueError(f"{len(nameless)} {kind} actions have no path")
        present = pc.is_valid(out["path"])
        out, column = out.filter(present), column.filter(present)
    if "stats_parsed" in have:
        stats = pc.coalesce(out["stats"], stats_json(pc.struct_field(column, "stats_parsed"), query))
        out = out.set_column(out.schema.get_field_index("stats"), out.schema.field("stats"), stats)
    return out


def _conform(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    if column.type == type_:
        return column
    if pa.types.is_struct(type_):
        have = set(column.type.names)
        chunks = [
            pa.StructArray.from_arrays(
                [chunk.field(f.name).cast(f.type) if f.name in have else pa.nulls(len(chunk), f.type) for f in type_],
                fields=list(type_),
                mask=chunk.is_null(),
            )
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, type_)
    return column.cast(type_)
