"""Our decoder of weight streams against Vela's C decoder, on every weight stream of the corpus.

The C decoder runs in a process of its own, on whole streams only: it exits on damaged ones. Ours
must refuse each stream when it is cut short, and random bytes of the same length.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from benchmarks.evidence import (
    Case,
    Evidence,
    Row,
    case_of,
    corpus,
    corpus_files,
    counts_of,
    hw_configs,
    not_done,
)
from npusched.errors import NpuschedError, SimError
from npusched.hardware import load_target
from npusched.sim import decode, state
from npusched.sim.mlw import Int16Array, decode_mlw
from npusched.sim.reader import Reader
from npusched.sim.run import open_compiled
from npusched.tflite import is_vela_compiled
from npusched.tflite.reader import read_model
from npusched.vela.cache import VelaCache
from npusched.vela.options import VelaOptions
from npusched.vela.runner import compile_model

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ACCELERATORS = ("ethos-u55-128", "ethos-u65-512")
CUTS = 8
FILLING = b"\xff"
"""What streams are filled up with to whole words: end marks, one after another."""

RANDOM_BYTES = 4096
"""Longest random stream: what is random fails early."""

UNPUBLISHED = (3, 4)
"""Activation functions TANH and SIGMOID, which loading refuses."""

HEAVY_BYTES = 400_000
"""CI measures no models again whose file is larger than this."""

ORACLE = """
import array, hashlib, sys
from ethosu import mlw_codec
for line in sys.stdin:
    values = array.array("h", mlw_codec.decode(bytearray.fromhex(line.strip())))
    print(len(values), hashlib.sha256(values.tobytes()).hexdigest(), flush=True)
"""


def cases() -> list[Case]:
    """(model, accelerator)."""
    return [(path, config) for path in corpus_files() for config in ACCELERATORS]


def measure(case: Case) -> Row:
    """Decode all weight streams of one compilation, and damaged forms of each."""
    path, config = case
    try:
        model = read_model((corpus() / path).read_bytes(), Path(path).stem)
        compiled = model.content
        if not is_vela_compiled(model):
            target = load_target(config)
            compiled = compile_model(compiled, target, VelaOptions(), cache=VelaCache()).compiled
        streams, note = streams_of(compiled)
    except NpuschedError as error:
        return {"status": f"{type(error).__name__}: {error.what}; {error.why}"[:200]}
    generator = random.Random(0)
    wanted = c_decoder(streams)
    ours = [(len(values), digest(values)) for values in map(decode_mlw, streams)]
    cut = [
        _cut(stream, end, values)
        for stream, (_, values) in zip(streams, ours, strict=True)
        for end in _ends(stream, generator)
    ]
    noise = [generator.randbytes(min(len(each), RANDOM_BYTES)) for each in streams]
    return {
        "status": "compared",
        "note": note,
        "streams": len(streams),
        "bytes": sum(map(len, streams)),
        "weights": sum(count for count, _ in ours),
        "equal": sum(a == b for a, b in zip(ours, wanted, strict=True)),
        "cut": dict(sorted(Counter(cut).items())),
        "random": len(noise),
        "random_refused": sum(map(is_refused, noise)),
    }


def streams_of(compiled: bytes) -> tuple[list[bytes], str]:
    """Distinct weight streams that loading a file decodes, and why it stopped early, if it did.

    Kernels with the unpublished functions pass: nothing is computed here.
    """
    known = state._table

    def table(reader: Reader, function: int) -> int | None:
        return None if function in UNPUBLISHED else known(reader, function)

    found: set[bytes] = set()

    def record(stream: bytes) -> Int16Array:
        found.add(stream)
        return decode_mlw(stream)

    note = ""
    with patch.object(decode, "decode_mlw", record), patch.object(state, "_table", table):
        try:
            open_compiled(compiled)
        except SimError as error:
            note = f"{error.what}; {error.why}"
    return sorted(found), note


def c_decoder(streams: Sequence[bytes]) -> list[tuple[int, str]]:
    """Number and hash of the weights of each stream, by Vela's decoder."""
    found = subprocess.run(
        [sys.executable, "-c", ORACLE],
        input="\n".join(stream.hex() for stream in streams),
        capture_output=True,
        text=True,
        check=True,
    )
    pairs = [line.split() for line in found.stdout.splitlines()]
    return [(int(count), digest) for count, digest in pairs]


def digest(values: Int16Array) -> str:
    """Hash of decoded weights, as ``c_decoder`` gives it."""
    return hashlib.sha256(values.tobytes()).hexdigest()


def _ends(stream: bytes, generator: random.Random) -> list[int]:
    """Lengths to cut a stream to: anywhere, at whole words, within the last byte of its codes."""
    size = len(stream)
    anywhere = [generator.randrange(size) for _ in range(CUTS - 3)]
    words = [generator.randrange(max(size // 16, 1)) * 16 for _ in range(2)]
    return sorted({*anywhere, *words, len(stream.rstrip(FILLING)) - 1})


def _cut(stream: bytes, end: int, whole: str) -> str:
    """What our decoder makes of a cut stream: refused, complete (only filling lost) or wrong."""
    try:
        values = decode_mlw(stream[:end])
    except SimError:
        return "refused"
    return "complete" if digest(values) == whole else "wrong"


def is_refused(stream: bytes) -> bool:
    """True if our decoder refuses a stream (with a SimError, nothing else)."""
    try:
        decode_mlw(stream)
    except SimError:
        return True
    return False


def render(rows: Sequence[Row]) -> str:
    """Totals per accelerator, what was not refused, and what was not decoded."""
    done = [row for row in rows if row["status"] == "compared"]
    lines = [
        "Distinct weight streams of every model as Vela compiles it, decoded by our decoder and by",
        f"Vela's C decoder; then each one cut short at up to {CUTS} places, and random bytes of",
        f"its length (at most {RANDOM_BYTES}). Cuts that only take filling away leave the stream",
        "complete; wrong ones would be accepted with other weights.",
        "",
        "| accelerator | models | streams | bytes | weights | equal | cut: refused | complete "
        "| wrong | random streams refused |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for config in ACCELERATORS:
        mine = [row for row in done if case_of(row)[1] == config and row["streams"]]

        def total(key: str, mine: Sequence[Row] = mine) -> int:
            return sum(int(str(row[key])) for row in mine)

        cut: Counter[str] = Counter()
        for row in mine:
            cut.update(counts_of(row, "cut"))
        lines.append(
            f"| {config} | {len(mine)} | {total('streams')} | {total('bytes')} | "
            f"{total('weights')} | {total('equal')} | {cut['refused']} | "
            f"{cut['complete']} | {cut['wrong']} | "
            f"{total('random_refused')} of {total('random')} |"
        )
    lines += ["", "Files of which only the streams before a refused kernel were seen:", ""]
    lines += [f"- {' '.join(case_of(row))}: {row['note']}" for row in done if row["note"]] or [
        "- none"
    ]
    lines += ["", "Not compiled:", ""]
    lines += not_done(rows)
    return "\n".join(lines)


EVIDENCE = Evidence(
    name="weights",
    title="Weight streams decoded",
    cases=cases,
    measure=measure,
    render=render,
    inputs=hw_configs,
    sample_size=8,
    heavy=lambda case: (corpus() / case[0]).stat().st_size > HEAVY_BYTES,
)
