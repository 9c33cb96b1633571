"""Rules that readers of 2.x files enforce, checked on the metadata of a file and its chunk tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from trilake.errors import TrilakeError
from trilake.lance.proto import encodings21_pb2 as pb
from trilake.lance.v2.container import Container, Page

#: Alignment of page buffers and global buffers in bytes, from 2.1 on: pylance 0.13 wrote files of 2.0 without it.
ALIGN = 64
#: Maximum bytes of a chunk in 2.1.
MAX_CHUNK = 1 << 15
_LISTS = frozenset({pb.ALL_VALID_LIST, pb.NULLABLE_LIST, pb.EMPTYABLE_LIST, pb.NULL_AND_EMPTY_LIST})
_LEVELS = frozenset({pb.NULLABLE_ITEM, pb.NULLABLE_LIST, pb.EMPTYABLE_LIST, pb.NULL_AND_EMPTY_LIST})


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a file breaks; ``column`` and ``page`` are ``None`` if it concerns all of them."""

    message: str
    column: int | None = None
    page: int | None = None


def violations(container: Container) -> Iterator[Violation]:
    """Yield the rules that a file breaks; damaged metadata is a violation too."""
    align = ALIGN if container.version > (2, 0) else 1
    for number, (position, _) in enumerate(container.global_places):
        if position % align:
            yield Violation(f"global buffer {number} begins at byte {position}, not at a multiple of {ALIGN}")
    for column in range(len(container.column_places)):
        try:
            pages = container.column(column).pages
        except TrilakeError as e:
            yield Violation(e.message, column)
            continue
        for number, page in enumerate(pages):
            for message in _page(container, page, align):
                yield Violation(message, column, number)


def _page(container: Container, page: Page, align: int) -> Iterator[str]:
    for position, size in page.buffers:
        if position % align and size:
            yield f"a buffer begins at byte {position}, not at a multiple of {ALIGN}"
    if container.version > (2, 0):
        try:
            yield from _layout(container, page, page.encoding)
        except TrilakeError as e:
            yield e.message


def _layout(container: Container, page: Page, layout: Any) -> Iterator[str]:
    kind = layout.WhichOneof("layout")
    if kind == "blob_layout":
        yield from _layout(container, page, layout.blob_layout.inner_layout)
    elif kind == "mini_block_layout":
        yield from _mini_block(container, page, layout.mini_block_layout)
    elif kind == "full_zip_layout":
        yield from _full_zip(page, layout.full_zip_layout)
    elif kind == "constant_layout":
        if len(page.buffers) > 3:
            yield f"a constant page has {len(page.buffers)} buffers, expected at most 3"
    else:
        yield "the page has no layout"


def _mini_block(container: Container, page: Page, layout: pb.MiniBlockLayout) -> Iterator[str]:
    lists = any(layer in _LISTS for layer in layout.layers)
    expected = 2 + layout.HasField("dictionary") + (layout.repetition_index_depth > 0)
    if len(page.buffers) != expected:
        yield f"a mini-block page has {len(page.buffers)} buffers, expected {expected}"
        return
    if not layout.layers:
        yield "the page does not describe its layers"
    if lists != layout.HasField("rep_compression"):
        yield f"a page {'with' if lists else 'without'} lists has {'no ' if lists else ''}repetition levels"
    if any(layer in _LEVELS for layer in layout.layers) and not layout.HasField("def_compression"):
        yield "a page with nullable layers has no definition levels"
    large = container.version >= (2, 2)
    if layout.has_large_chunk != large:
        yield f"the sizes of chunks have {32 if layout.has_large_chunk else 16} bits, expected {32 if large else 16}"
    width = 4 if layout.has_large_chunk else 2
    words = np.frombuffer(container.source.read(*page.buffers[0]), np.uint8)
    if not len(words) or len(words) % width:
        yield f"the table of chunks has {len(words)} bytes, expected a multiple of {width}"
        return
    words = words.view(f"<u{width}").astype(np.int64)
    exponents, sizes = words & 15, ((words >> 4) + 1) * 8
    if (exponents[:-1] == 0).any():
        yield f"chunk {int(np.argmin(exponents[:-1]))} is not the last and has 1 value, expected 2 or more"
    if sizes.sum() != page.buffers[1][1]:
        yield f"the chunks have {sizes.sum()} bytes, but their buffer has {page.buffers[1][1]}"
    if not large and sizes.max() > MAX_CHUNK:
        yield f"chunk {int(sizes.argmax())} has {sizes.max()} bytes, expected at most {MAX_CHUNK}"
    before = int((1 << exponents[:-1]).sum())
    if before >= layout.num_items:
        yield f"the chunks before the last have {before} values, but all chunks have {layout.num_items}"
    if lists and not layout.repetition_index_depth:
        yield "a page with lists has no repetition index"
    elif lists:
        index = np.frombuffer(container.source.read(*page.buffers[-1]), "<u8")
        if len(index) != 2 * len(words):
            yield f"the repetition index has {len(index)} numbers, expected {2 * len(words)}"
        elif index[::2].sum() != page.length:
            yield f"the repetition index counts {index[::2].sum()} rows, but the page has {page.length}"
    elif not layout.HasField("def_compression") and layout.num_items != page.length:
        yield f"the page has {layout.num_items} values and a length of {page.length}"


def _full_zip(page: Page, layout: pb.FullZipLayout) -> Iterator[str]:
    lists = any(layer in _LISTS for layer in layout.layers)
    variable = layout.WhichOneof("details") == "bits_per_offset"
    expected = 2 if variable or lists else 1
    if len(page.buffers) != expected:
        yield f"a full-zip page has {len(page.buffers)} buffers, expected {expected}"
        return
    if not layout.layers:
        yield "the page does not describe its layers"
    if layout.num_visible_items > layout.num_items:
        yield f"the page has {layout.num_visible_items} values for {layout.num_items} levels"
    bits = layout.bits_rep + layout.bits_def
    word = (bits > 0) + (bits > 8) + 2 * (bits > 16)
    if not variable:
        size = layout.num_items * word + layout.num_visible_items * layout.bits_per_value // 8
        if page.buffers[0][1] != size:
            yield f"the values have {page.buffers[0][1]} bytes, expected {size}"
    if expected == 2 and (page.length == 0 or page.buffers[1][1] % (page.length + 1)):
        yield f"the repetition index has {page.buffers[1][1]} bytes, expected a multiple of {page.length + 1}"
    if not lists and layout.num_items != page.length:
        yield f"the page has {layout.num_items} values and a length of {page.length}"
