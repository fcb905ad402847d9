"""Run, prove and inspect compiled files: bytes -> simulator -> published values."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from npusched import __version__
from npusched.api.inspecting import accelerator_name, file_contents, host_ops
from npusched.errors import ModelError, NpuschedError, SimError, TargetError
from npusched.hardware.target import AcceleratorU55
from npusched.report.execution_types import (
    EXECUTION_SCHEMA_VERSION,
    DifferenceFacts,
    IntermediateFacts,
    OutputFacts,
    ProveReport,
    RunOutput,
    RunReport,
)
from npusched.sim.proof import Mode
from npusched.sim.proof import prove as prove_executable
from npusched.sim.reference import random_inputs
from npusched.sim.run import bind_inputs, draw_inputs, open_compiled

if TYPE_CHECKING:
    from pathlib import Path

    from npusched.hardware import Target
    from npusched.ir import Subgraph
    from npusched.sim.kernels.arrays import Array
    from npusched.vela.options import VelaOptions

_ZIP = b"PK"
_UNREADABLE = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What numpy and zipfile raise for damaged, encrypted or oversized archives."""

_FIRST = 4
"""Values of an output that a run's report shows."""


def run_compiled(
    content: bytes, *, name: str, inputs: bytes | None = None, seed: int = 0
) -> tuple[RunReport, dict[str, Array]]:
    """Run a compiled file: the report, and its outputs by name, (batch, *shape).

    ``inputs``: an .npz file with an array per graph input, (batch, *shape) or of the tensor's
    shape; None = one random input by ``seed``. Raises ModelError for files that were not compiled,
    SimError for what is not modelled, inputs that do not fit, and missing LiteRT (host ops only).
    """
    ready = open_compiled(content, name)
    graph = ready.graph
    bound = draw_inputs(ready, 1, seed) if inputs is None else _bind(graph, read_npz(inputs))
    found = ready.run(bound)
    outputs: dict[str, Array] = {}
    for index, values in found.items():
        label = graph.tensors[index].name
        outputs[label if label and label not in outputs else f"{label or 'output'}_{index}"] = (
            values
        )
    report = RunReport(
        schema_version=EXECUTION_SCHEMA_VERSION,
        npusched_version=__version__,
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        accelerator=accelerator_name(ready.programs[0].machine),
        npu_operators=len(ready.programs),
        npu_ops=sum(len(program.kernels) for program in ready.programs),
        host_ops=sum(host_ops(ready).values()),
        inputs=max((len(values) for values in bound.values()), default=1),
        seed=seed if inputs is None else None,
        outputs=tuple(_run_output(label, values) for label, values in outputs.items()),
    )
    return report, outputs


def _bind(graph: Subgraph, named: Mapping[str, Array]) -> dict[int, Array]:
    """Return given inputs by tensor index. Raises SimError if they are none, or do not fit."""
    bound = bind_inputs(graph, named)
    for index, values in bound.items():
        if not values.ndim or not len(values):
            raise SimError(
                f"input {graph.tensors[index].name} holds no values",
                f"its shape is {list(values.shape)}",
                f"needed: {list(graph.tensors[index].shape)}, or a batch of such",
            )
    return bound


def _run_output(name: str, values: Array) -> RunOutput:
    return RunOutput(
        name=name,
        dtype=str(values.dtype),
        shape=values.shape,
        lowest=float(values.min()) if values.size else 0.0,
        highest=float(values.max()) if values.size else 0.0,
        first=tuple(float(value) for value in values.reshape(-1)[:_FIRST]),
        sha256=hashlib.sha256(_little_endian(values)).hexdigest(),
    )


def _little_endian(values: Array) -> bytes:
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def read_npz(content: bytes) -> dict[str, Array]:
    """Return the arrays of an .npz file. Raises NpuschedError if it is none, or holds objects."""
    if not content.startswith(_ZIP):
        raise _no_npz("it is no archive: a single array (.npy) has no name")
    try:
        archive = np.load(io.BytesIO(content), allow_pickle=False)
        return {name: np.asarray(archive[name]) for name in archive.files}
    except _UNREADABLE as error:
        lines = str(error).splitlines()
        raise _no_npz(lines[0] if lines else type(error).__name__) from None


def _no_npz(why: str) -> NpuschedError:
    return NpuschedError(
        "cannot read the inputs: they are no .npz file",
        why,
        "write them with numpy.savez(FILE, **{input name: array})",
    )


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return an .npz file, the same for the same arrays (any names, no time stamps)."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, values in arrays.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(values), allow_pickle=False)
            safe = name.replace("\0", "_").encode(errors="replace").decode()
            archive.writestr(zipfile.ZipInfo(f"{safe}.npy"), one.getvalue())
    return written.getvalue()


def prove(
    model: str | Path | bytes,
    target: str | Target,
    *,
    compiled: str | Path | bytes | None = None,
    vela_options: VelaOptions | None = None,
    inputs: int = 20,
    seed: int = 0,
    mode: str = "proof",
    use_cache: bool = True,
) -> ProveReport:
    """Compile a model with Vela, execute the result, compare it with LiteRT's reference kernels.

    ``model``, ``target``: as in ``plan``. ``compiled``: a file that Vela wrote, taken instead of
    compiling; ``vela_options``: how Vela is run. ``inputs`` random ones by ``seed``; ``mode``:
    "proof" or "hardware" (docs/simulation.md). Raises ModelError, TargetError, VelaError if Vela
    fails, SimError for what is not modelled and for missing LiteRT, OSError for a file that cannot
    be read.
    """
    from npusched.api.planning import content_of
    from npusched.hardware import load_target

    content, name = content_of(model)
    made, made_name = (None, "") if compiled is None else content_of(compiled)
    return prove_report(
        content,
        name=name,
        target=load_target(target) if isinstance(target, str) else target,
        compiled=made,
        compiled_name=made_name,
        vela_options=vela_options,
        inputs=inputs,
        seed=seed,
        mode=mode,
        use_cache=use_cache,
    )


def prove_report(
    content: bytes,
    *,
    name: str,
    target: Target,
    compiled: bytes | None = None,
    compiled_name: str = "",
    vela_options: VelaOptions | None = None,
    inputs: int = 20,
    seed: int = 0,
    mode: str = "proof",
    use_cache: bool = True,
) -> ProveReport:
    """Compile a model (or take ``compiled``), run it, compare it with LiteRT's reference kernels.

    ``mode``: "proof" or "hardware" (docs/simulation.md). Raises ModelError, TargetError, VelaError
    if Vela fails, SimError for what is not modelled and for missing LiteRT.
    """
    from npusched.api.planning import read

    model = read(content, name)
    _check_family(target)
    compiler = compiled_name
    if compiled is None:
        compiled, compiler = _compile(content, target, vela_options, use_cache=use_cache)
    ready = open_compiled(compiled, compiled_name or name)
    proof = prove_executable(
        model,
        ready,
        random_inputs(model.subgraphs[0], inputs, seed),
        seed=seed,
        mode=Mode(mode),
    )
    found = file_contents(ready)
    made_for = found.accelerator
    warnings = []
    if target.accelerator is not None and made_for != target.accelerator.name:
        warnings.append(f"the file was made for {made_for}, the target is {target.name}")
    inside = proof.intermediates
    return ProveReport(
        schema_version=EXECUTION_SCHEMA_VERSION,
        npusched_version=__version__,
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        target=target.name,
        accelerator=made_for,
        compiler=compiler,
        verdict=proof.verdict,
        mode=proof.mode,
        inputs=proof.inputs,
        seed=seed,
        outputs_equal=proof.outputs_equal,
        outputs=tuple(OutputFacts(**asdict(output)) for output in proof.outputs),
        intermediates=IntermediateFacts(
            compared=inside.kernels,
            equal=inside.equal,
            coverage=inside.coverage,
            tensors=inside.tensors,
            covered=inside.covered,
            temporaries=inside.temporaries,
            missing=inside.missing,
            absorbed=tuple(name for name, _ in inside.absorbed),
            reasons=inside.reasons,
            different=inside.different,
            skipped=inside.skipped,
        ),
        difference=None
        if proof.difference is None
        else DifferenceFacts(**asdict(proof.difference)),
        single_rounding=proof.single_rounding,
        exceptions=proof.exceptions,
        hazards=found.hazards,
        executed=found.totals,
        memory_map=found.memory_map,
        warnings=tuple(warnings),
    )


def _check_family(target: Target) -> None:
    """Refuse targets whose streams are not modelled, before anything is compiled."""
    if target.accelerator is None:
        raise TargetError(
            f"{target.name} has no NPU",
            "only Ethos-U55 and U65 command streams can be executed",
            "name such a target with --config (npusched configs lists them)",
        )
    if not isinstance(target.accelerator, AcceleratorU55):
        raise SimError(
            f"cannot execute streams for {target.accelerator.name}",
            "registers and weight formats of Ethos-U85 are not modelled",
            "name an Ethos-U55 or U65 target with --config",
        )


def _compile(
    content: bytes, target: Target, options: VelaOptions | None, *, use_cache: bool
) -> tuple[bytes, str]:
    """Compile with Vela; refuse models of which nothing is on the NPU."""
    from npusched.tflite import is_vela_compiled
    from npusched.tflite.reader import read_compiled
    from npusched.vela import runner
    from npusched.vela.cache import VelaCache

    cache = VelaCache() if use_cache else None
    result = runner.compile_model(content, target, options, cache=cache)
    if not is_vela_compiled(read_compiled(result.compiled, "compiled")):
        raise ModelError(
            "there is nothing to prove",
            "Vela leaves every op of the model on the host",
            "'npusched plan' says why each op is not on the NPU",
        )
    return result.compiled, f"Vela {result.vela_version}"
