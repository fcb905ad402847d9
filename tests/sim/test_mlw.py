"""The weight stream decoder, against Vela's C codec and by hand."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.evidence_weights import c_decoder, digest, streams_of
from npusched.errors import SimError
from npusched.sim.mlw import decode_mlw
from tests.sim.sim_models import compiled, corpus_model


def encode(values: list[int]) -> bytes:
    """Encode with the C codec."""
    from ethosu import mlw_codec

    return bytes(mlw_codec.encode(values))


def bits(*fields: tuple[int, int]) -> bytes:
    """Pack (value, width) fields, low bits first, to whole bytes of zeros."""
    total = position = 0
    for value, width in fields:
        total |= value << position
        position += width
    return total.to_bytes((position + 7) // 8, "little")


def test_hand_written_uncompressed_slice() -> None:
    """No zero runs (6), 3 weights (2), uncompressed (7), new palette, offset 0, no palette, 3 bits
    (field 1). Codes 2, 5, 4 are magnitude code >> 1 with sign in bit 0: 1, -2, 2. Then the end mark
    (7). Bits: 3+15+3+1+1+5+5+3 = 36 header, 9 of data, 3 end mark = 48 = 6 bytes.
    """
    stream = bits(
        (6, 3), (2, 15), (7, 3), (0, 1), (1, 1), (0, 5), (0, 5), (1, 3),
        (2, 3), (5, 3), (4, 3), (7, 3),
    )  # fmt: skip
    assert len(stream) == 6
    assert decode_mlw(stream).tolist() == [1, -2, 2]


def test_hand_written_palette() -> None:
    """A palette of 2 values (size field 1) of 4 bits (field 2): codes 6 and 9 are 3 and -4. One bit
    per symbol indexes it: 0, 1, 1, 0.
    """
    stream = bits(
        (6, 3), (3, 15), (7, 3), (0, 1), (1, 1), (0, 5), (1, 5), (2, 3), (6, 4), (9, 4),
        (0, 1), (1, 1), (1, 1), (0, 1), (7, 3),
    )  # fmt: skip
    assert decode_mlw(stream).tolist() == [3, -4, -4, 3]


def test_hand_written_golomb_rice() -> None:
    """Weight code 1 (one remainder bit), no zero runs, 2 weights. Unary lanes (12 bits): lane 0 is
    1 with second bit 1 (a two, so the symbol goes on), lane 1 is 0: quotient 2; lane 2 is 1 with
    second bit 0: quotient 1; the other 9 lanes are further symbols beyond the slice. First unary
    word 0b101 = 5, second 0b01 = 1 (2 ones). Remainders 1, 0: values 5 and 2 -> -2 and 1.
    """
    stream = bits(
        (6, 3), (1, 15), (1, 3), (0, 1), (1, 1), (0, 5), (0, 5), (0, 3),
        (5, 12), (1, 2), (1, 1), (0, 1), (7, 3),
    )  # fmt: skip
    assert decode_mlw(stream).tolist() == [-2, 1]


@st.composite
def weight_lists(draw: st.DrawFn) -> list[int]:
    """Weights of several distributions: dense, sparse, few values, narrow."""
    seed = draw(st.integers(0, 2**32 - 1))
    count = draw(st.integers(1, 5000))
    kind = draw(st.integers(0, 4))
    generator = np.random.default_rng(seed)
    match kind:
        case 0:
            values = generator.integers(-255, 256, count)
        case 1:
            values = np.rint(generator.normal(0, 12, count)).clip(-255, 255)
        case 2:
            values = generator.integers(-127, 128, count) * (generator.random(count) < 0.1)
        case 3:
            values = generator.choice([0, 1, -5, 100], count)
        case _:
            values = np.rint(generator.laplace(0, 2, count)).clip(-255, 255)
    return [int(value) for value in values]


@settings(max_examples=60, deadline=None)
@given(weight_lists())
def test_decodes_what_was_encoded(values: list[int]) -> None:
    """The encoder may append zeros, nothing else."""
    decoded = decode_mlw(encode(values))
    assert decoded[: len(values)].tolist() == values
    assert not decoded[len(values) :].any()


@pytest.fixture(scope="module")
def corpus_streams(corpus_dir: Path) -> list[bytes]:
    """All weight streams that regor's own encoder made for three models, two accelerators."""
    found: set[bytes] = set()
    for name in ("mlpt_kws", "mlpt_resnet8", "mlpt_str_ww"):
        for config in ("ethos-u55-128", "ethos-u65-512"):
            streams, _ = streams_of(compiled(corpus_model(corpus_dir, name), config))
            found.update(streams)
    return sorted(found)


def test_equals_the_c_decoder_on_real_streams(corpus_streams: list[bytes]) -> None:
    """``reports/weights.md`` has those of all models."""
    assert len(corpus_streams) > 80
    ours = [(len(values), digest(values)) for values in map(decode_mlw, corpus_streams)]
    assert ours == c_decoder(corpus_streams)


def test_refuses_truncated_streams(corpus_streams: list[bytes]) -> None:
    """Cut at every kind of place: whole words, bytes, one byte short."""
    stream = max(corpus_streams, key=len)
    places = {*range(0, len(stream) - 16, max(1, len(stream) // 60))} - {0}
    for place in sorted(places):
        with pytest.raises(SimError):
            decode_mlw(stream[:place])


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=16, max_size=400))
def test_random_bytes_never_crash(stream: bytes) -> None:
    """Random bytes are refused, or decode to something: they never raise anything else."""
    with contextlib.suppress(SimError):
        assert decode_mlw(stream).dtype == np.int16


def test_nearly_all_random_streams_are_refused() -> None:
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        try:
            decode_mlw(generator.bytes(160))
        except SimError:
            refused += 1
    assert refused >= 299


def test_empty_stream_has_no_end_mark() -> None:
    with pytest.raises(SimError, match="end mark"):
        decode_mlw(b"")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (((4, 3), (0, 31)), "zero-run code 4"),
        (((6, 3), (0, 15), (6, 3), (0, 30)), "weight code 6"),
        (((6, 3), (0, 15), (0, 3), (0, 1), (0, 1), (0, 30)), "no palette"),
    ],
)
def test_illegal_headers_are_named(fields: tuple[tuple[int, int], ...], why: str) -> None:
    with pytest.raises(SimError, match=why):
        decode_mlw(bits(*fields))
