"""Checks of blocks: checksum, codec, payload, children and parents, first values."""

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
    """A damaged block: an error, or a first value that differs from the descriptor."""

    key: str
    column: str
    block: int
    error: Exception | None = None
    descriptor_value: object = None
    actual_value: object = None


def block_faults(table: TrevniContext) -> list[BlockFault | None]:
    """Read the blocks of the sampled files once; returns one entry per block, ``None`` if it is sound."""
    if table.blocks is None:
        table.blocks = [fault for one in table.chosen for fault in _blocks(one)]
    faults: list[BlockFault | None] = table.blocks
    return faults


def _blocks(one: OpenFile) -> Iterator[BlockFault | None]:
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
            continue  # another check reports an ancestor without a block table
        for block in range(len(blocks)):
            start, stop = int(blocks.row_starts[block]), int(blocks.row_starts[block + 1])
            try:
                # Reading a child reads its ancestors, whose faults are reported separately.
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
                stated = blocks.first_values[block].as_py()
                yield BlockFault(one.key, column.label, block, None, stated, cut.values[0].as_py())
                continue
            yield None


def checksums(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every block matches its checksum."""
    for fault in block_faults(table):
        if fault is not None and isinstance(fault.error, BlockChecksumError):
            yield finding("trevni.block-checksum", fault.error, fault.key)
    return len(block_faults(table))


def payloads(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every block can be decompressed and has exactly its values; children match the lengths of their parents."""
    for fault in block_faults(table):
        if fault is not None and fault.error is not None and not isinstance(fault.error, BlockChecksumError):
            yield finding("trevni.block-unreadable", fault.error, fault.key)
    return len(block_faults(table))


def first_values(table: TrevniContext) -> Generator[Finding, None, int]:
    """Every first value in a block descriptor is that of the block."""
    for fault in block_faults(table):
        if fault is not None and fault.error is None:
            yield Finding(
                "trevni.first-value-wrong",
                f"the block starts with {fault.actual_value!r:.100}, expected {fault.descriptor_value!r:.100}:"
                " seek and filters would miss rows",
                HELP,
                file=fault.key,
                column=fault.column,
                details={"block": fault.block},
            )
    return len(block_faults(table))
