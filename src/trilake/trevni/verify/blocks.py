"""Checks of blocks: checksum, codec, payload, children against their parents, first values; each block by itself."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from trilake.errors import TrilakeError
from trilake.table.findings import Finding
from trilake.trevni.blocks.codecs import BlockChecksumError
from trilake.trevni.blocks.decode import Budget
from trilake.trevni.verify.context import OpenFile, TrevniContext
from trilake.trevni.verify.headers import HELP, finding


@dataclass(frozen=True)
class BlockFault:
    """A block that is wrong: an error, or a first value that is not the descriptor's."""

    key: str
    column: str
    block: int
    error: Exception | None = None
    stated: object = None
    true: object = None


@dataclass(frozen=True)
class BlockFaults:
    """What reading all blocks found; ``blocks`` is how many were read."""

    wrong: tuple[BlockFault, ...]
    blocks: int


def seen(table: TrevniContext) -> BlockFaults:
    """What reading the blocks of the chosen files finds, read once."""
    if table.blocks is None:
        wrong: list[BlockFault] = []
        count = 0
        for one in table.chosen:
            for fault in _blocks(one):
                count += 1
                wrong += [fault] if isinstance(fault, BlockFault) else []
        table.blocks = BlockFaults(tuple(wrong), count)
    out: BlockFaults = table.blocks
    return out


def _blocks(one: OpenFile) -> Iterator[BlockFault | None]:
    """One entry a block: what is wrong with it."""
    file = one.file
    if file is None:
        return
    reported: set[tuple[str, int]] = set()
    for number, blocks in one.tables.items():
        column = file.header.columns[number]
        parent = column.parent
        while parent is not None and parent in one.tables:
            parent = file.header.columns[parent].parent
        if parent is not None:
            continue  # an ancestor has no block table: a finding of its own
        for block in range(len(blocks)):
            start, stop = int(blocks.row_starts[block]), int(blocks.row_starts[block + 1])
            try:
                # A child is read with its ancestors, whose faults are theirs.
                cut = file.cut([number], start, stop, Budget.of(file.size, limited=True))[number]
            except (TrilakeError, OSError) as e:
                context = e.context if isinstance(e, TrilakeError) else {}
                place = str(context.get("column", column.label)), int(context.get("block") or 0)
                if place in reported:
                    yield None
                    continue
                reported.add(place)
                yield BlockFault(one.key, place[0], place[1], e)
                continue
            if (
                blocks.first_values is not None
                and len(cut.values)
                and not cut.values[0].equals(blocks.first_values[block])
            ):
                yield BlockFault(
                    one.key,
                    column.label,
                    block,
                    None,
                    blocks.first_values[block].as_py(),
                    cut.values[0].as_py(),
                )
                continue
            yield None


def checksums(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every block is what its checksum says."""
    for wrong in seen(table).wrong:
        if isinstance(wrong.error, BlockChecksumError):
            yield finding("trevni.block-checksum", wrong.error, wrong.key)
    return seen(table).blocks


def payloads(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every block can be decompressed and holds exactly its values; children fit the lengths of their parents."""
    for wrong in seen(table).wrong:
        if wrong.error is not None and not isinstance(wrong.error, BlockChecksumError):
            yield finding("trevni.block-unreadable", wrong.error, wrong.key)
    return seen(table).blocks


def first_values(table: TrevniContext) -> Generator[Finding, None, int]:
    """The first value that a block descriptor states is that of the block."""
    for wrong in seen(table).wrong:
        if wrong.error is None:
            yield Finding(
                "trevni.first-value-wrong",
                f"the block begins with {wrong.true!r:.100}, its descriptor says {wrong.stated!r:.100}:"
                " seeking and filters would miss rows",
                HELP,
                file=wrong.key,
                column=wrong.column,
                details={"block": wrong.block},
            )
    return seen(table).blocks
