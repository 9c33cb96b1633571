"""Damage to files: bytes changed, removed, inserted and moved; protobuf numbers set to their limits."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from trilake.errors import TrilakeError
from trilake.lance.file import framing
from trilake.lance.file.sources import MappedSource

#: The seed of all damage.
FIRST = int(os.environ.get("TRILAKE_FIRST_SEED", "20"))

T = TypeVar("T")
_M = TypeVar("_M", bound=Message)

_EXTREMES = (0, 1, 2, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63 - 1, 2**64 - 1, -1, -(2**31), -(2**63))
_TEXTS = ("", "x", "../../x", "int32", "string", "list", "struct", "dict:string:int8:false", "null", "timestamp:ns:X/Y")
_MORE = ("fixed_size_list:bool:2147483647", "fixed_size_list:float:0", "fixed_size_binary:0", "decimal:128:38:-3")


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The data with one to three small changes, most often near its end."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        size = len(changed)
        if size < 2:
            break
        at = rng.randrange(size) if rng.random() < 0.85 else max(0, size - 1 - int(rng.expovariate(1 / 60)))
        match rng.randrange(8):
            case 0 | 1:
                changed[at] = rng.randrange(256)
            case 2:
                changed[at] ^= 1 << rng.randrange(8)
            case 3:
                changed[at : at + 8] = rng.choice((b"\xff" * 8, bytes(8), b"\xff" * 7 + b"\x7f", rng.randbytes(8)))
            case 4:
                changed[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f"))
            case 5:
                del changed[at : at + rng.randint(1, 16)]
            case 6:
                changed[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                to, width = rng.randrange(size), rng.randint(1, 32)
                changed[to : to + width] = changed[at : at + width]
    return bytes(changed)


def with_message(rng: random.Random, data: bytes, kind: type[_M]) -> bytes:
    """A whole Lance file whose last message has one or two fields changed."""
    position = framing.read_footer(MappedSource("", pa.py_buffer(data)), damaged=TrilakeError)
    length = int.from_bytes(data[position : position + 4], "little")
    message = kind.FromString(data[position + 4 : position + 4 + length])
    change(rng, message)
    return data[:position] + framing.frame(message) + framing.footer(position)


def change(rng: random.Random, message: Message) -> None:
    """Change one or two fields somewhere in a message."""
    for _ in range(rng.choice((1, 1, 2))):
        try:
            part, field = rng.choice(_fields(message))
            value = getattr(part, field.name)
            if field.is_repeated:
                _change_repeated(rng, field, value)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                part.ClearField(field.name)
            else:
                setattr(part, field.name, _scalar(rng, field))
        except (ValueError, TypeError, OverflowError, IndexError):
            pass  # the field's type has no such value, or there is nothing to change


def _fields(message: Message) -> list[tuple[Message, Any]]:
    found: list[tuple[Message, Any]] = []
    for field in message.DESCRIPTOR.fields:
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            found.append((message, field))
            continue
        if field.message_type.GetOptions().map_entry:
            continue
        value = getattr(message, field.name)
        below = list(value) if field.is_repeated else [value] if message.HasField(field.name) else []
        if below:
            found.append((message, field))
        for one in below:
            found += _fields(one)
    return found


def _change_repeated(rng: random.Random, field: Any, value: Any) -> None:
    if len(value) and rng.random() < 0.3:
        del value[rng.randrange(len(value))]
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        value.append(rng.choice(list(value)))
    elif len(value) and rng.random() < 0.6:
        value[rng.randrange(len(value))] = _scalar(rng, field)
    else:
        value.append(_scalar(rng, field))


def _scalar(rng: random.Random, field: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(_TEXTS + _MORE)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.randbytes(rng.randint(0, 20))
    return rng.choice(_EXTREMES)


def attack(
    samples: Sequence[T], damage: Callable[[random.Random, T], T], read: Callable[[T], object], count: int
) -> int:
    """Read ``count`` damaged samples, each of which must be read or raise a trilake error; the number of errors.

    Raises any other error that reading raises.
    """
    rng, rejected = random.Random(FIRST), 0
    for number in range(count):
        broken = damage(rng, rng.choice(samples))
        try:
            read(broken)
        except TrilakeError:
            rejected += 1
        except Exception as e:
            e.add_note(f"damage {number} of the first seed {FIRST}")
            raise
    return rejected
