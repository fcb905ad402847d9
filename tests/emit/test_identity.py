"""Vela's own schedule emitted again: word for word Vela's stream, but for lower BLOCKDEP values.

The test of every new version of Vela.
"""

from __future__ import annotations

import pytest

from npusched.emission.container import write_file
from npusched.emission.identity import compare_streams, emit_identity
from npusched.emission.template import CONSTANT
from npusched.sim.proof import Verdict, prove_compiled
from tests.conftest import corpus_path
from tests.emit.emitting_kit import content_of, ready

DEMOS = [
    (demo, config)
    for demo, configs in {
        "resnet8": ("ethos-u55-128", "ethos-u55-32", "ethos-u65-512"),
        "ds_cnn": ("ethos-u55-64", "ethos-u65-256"),
        "autoencoder": ("ethos-u55-256",),
        "unet": ("ethos-u55-128",),
    }.items()
    for config in configs
]

CORPUS = ["mlpt_vww", "mlzoo_ds_cnn_s_int16", "tinyengine_vww", "coral_split_concat"]
"""Softmax, 16 bits, transposes with ops of the host between, concatenations of channels."""


def check(name: str, config: str) -> None:
    """Equal but for lower values of BLOCKDEP, in no more memory, and through the gate."""
    made = ready(name, config)
    emitted = emit_identity(made.template)
    assert emitted.read_only == made.template.read_only
    assert emitted.arena_bytes <= made.template.partitions[0].regions[1].size_bytes
    found = compare_streams(made.template, emitted)
    assert found.others == ()
    assert found.words == 0
    assert all(ours < theirs for _, _, ours, theirs in found.block_dependencies)
    assert not made.gate(emitted)[1].failed


@pytest.mark.parametrize(("name", "config"), DEMOS)
def test_demos(name: str, config: str) -> None:
    check(name, config)


@pytest.mark.skipif(corpus_path() is None, reason="no model corpus")
@pytest.mark.parametrize("name", CORPUS)
def test_corpus(name: str) -> None:
    check(name, "ethos-u55-128")


def test_equals_the_reference() -> None:
    pytest.importorskip("ai_edge_litert", reason="the reference kernels are not installed")
    made = ready("resnet8", "ethos-u55-128")
    written = write_file(emit_identity(made.template))
    assert prove_compiled(content_of("resnet8"), written, 2).verdict is Verdict.EQUAL


def test_templates_have_all_weights_in_the_read_only_tensor() -> None:
    made = ready("resnet8", "ethos-u65-512")
    parts = [part for k in made.template.kernels for part in (*k.state.weights, *k.state.scales)]
    assert parts
    assert all(part.region == CONSTANT for part in parts)
