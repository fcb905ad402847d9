"""Damage a command stream on purpose, to see how much of it the checks notice.

A mutation changes the value of one register write. It matters if it changes what the simulator
models (the loaded program); then it should be refused, reported, or change a value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npusched.hardware.target import Family
from npusched.sim.kernels import Scaling
from npusched.sim.memory import Storage
from npusched.sim.program import LoadedKernel, Program, Wait
from npusched.vela.stream import Register, Stream, decode_stream

_TWO_WORDS = 0x4000
_CODE = 0xC3FF
_FIRST_REGISTER = 0x100
_PRODUCTS = {Family.U55: 0, Family.U65: 1, Family.U85: 2}


@dataclass(frozen=True, slots=True)
class Mutation:
    """Bit ``bit`` of the value that command word ``word`` sets in ``register`` flips."""

    word: int
    register: str
    bit: int


def register_writes(stream: Stream) -> Iterator[tuple[int, int]]:
    """Yield (word index, register code) of all register writes."""
    position = 0
    while position < len(stream.words):
        code = stream.words[position] & _CODE
        is_long = bool(code & ~0x3FF)
        if is_long or code >= _FIRST_REGISTER:
            yield position, code
        position += 2 if is_long else 1


def draw_mutations(stream: Stream, count: int, seed: int) -> tuple[Mutation, ...]:
    """Return ``count`` seeded mutations: any register write, any of its low 8 to 16 bits."""
    generator = np.random.default_rng(seed)
    writes = list(register_writes(stream))
    found = []
    for _ in range(count):
        word, code = writes[int(generator.integers(len(writes)))]
        bits = 16 if code & _TWO_WORDS else 8
        found.append(Mutation(word, _name(code), int(generator.integers(bits))))
    return tuple(found)


def mutate(stream: Stream, mutation: Mutation) -> Stream:
    """Return the stream with one register write changed. Raises ModelError if it is no stream."""
    words = list(stream.words)
    is_long = bool(words[mutation.word] & _TWO_WORDS)
    if is_long:
        words[mutation.word + 1] ^= 1 << mutation.bit
    else:
        words[mutation.word] ^= 1 << (16 + mutation.bit)
    return decode_stream(payload(stream, tuple(words)))


def payload(stream: Stream, words: tuple[int, ...]) -> bytes:
    """Return a COP1 payload with other command words for the same accelerator."""
    config = stream.macs_per_cycle.bit_length() - 1
    config |= stream.shram_bytes >> 10 << 8 | _PRODUCTS[stream.family] << 28
    major, minor, patch = stream.architecture_version
    identity = major << 28 | minor << 20 | patch << 16
    head = [0x01, config, identity]
    while (len(head) + 2) % 4:
        head.append(0x05)
    head.append(0x02 | (len(words) >> 16) << 8 | (len(words) & 0xFFFF) << 16)
    return b"COP1" + struct.pack(f"<{len(head) + len(words)}I", *head, *words)


def _name(code: int) -> str:
    try:
        return Register(code).name
    except ValueError:
        return f"{code:#x}"


def effect(program: Program) -> tuple[object, ...]:
    """Return what of a program can change data: addresses of elements, arithmetic, DMAs.

    Two programs of equal effect write equal bytes whatever their inputs. Registers that nothing
    reads, and how the SHRAM is divided, are not part of it.
    """
    return tuple(
        _kernel_effect(command) if isinstance(command, LoadedKernel) else command
        for command in program.commands
        if not isinstance(command, Wait)
    )


def _kernel_effect(kernel: LoadedKernel) -> tuple[object, ...]:
    arithmetic, state = kernel.arithmetic, kernel.state
    if arithmetic is None:
        return (state,)
    weights = arithmetic.weights
    scaling, table = arithmetic.scaling, arithmetic.table
    return (
        tuple(_places(storage) for storage in (*kernel.reads, kernel.ofm)),
        arithmetic.operation,
        arithmetic.dtype.str,
        tuple(view.dtype.str for view in state.views),
        arithmetic.window,
        arithmetic.mode,
        (arithmetic.ifm_zero_point, arithmetic.ifm2_zero_point, arithmetic.scalar),
        arithmetic.ifm2_is_first,
        None if weights is None else (kernel.volume_bytes, weights.bias.tobytes()),
        _scaling(scaling),
        None
        if arithmetic.operands is None
        else tuple(
            _scaling(each) if isinstance(each, Scaling) else each
            for each in (arithmetic.operands.a, arithmetic.operands.b)
        ),
        arithmetic.limits,
        None if table is None else (table.entries.tobytes(), table.is_signed),
    )


def _scaling(scaling: Scaling | None) -> tuple[object, ...] | None:
    if scaling is None:
        return None
    return (
        scaling.multiplier.tobytes(),
        scaling.shift.tobytes(),
        scaling.rounding,
        scaling.headroom_bits,
    )


def _places(storage: Storage) -> tuple[object, ...]:
    """Where elements lie: strides of axes of one element do not matter."""
    return (
        storage.view.region,
        tuple(
            (
                piece.address,
                piece.shape,
                tuple(s if n > 1 else 0 for n, s in zip(piece.shape, piece.strides, strict=True)),
            )
            for piece in storage.pieces
        ),
    )
