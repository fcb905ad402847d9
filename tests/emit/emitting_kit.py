"""Models ready to be emitted, prepared once per test process."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from dataclasses import dataclass
from functools import lru_cache

from npusched.api.options import PlanOptions
from npusched.api.planning import Prepared, prepare
from npusched.demos import demo
from npusched.emit.container import write_file
from npusched.emit.gate import Gate, check_file
from npusched.emit.matching import KernelMatch, match_kernels
from npusched.emit.parts import Emitted
from npusched.emit.planned import emit_plan
from npusched.emit.template import Template, make_template
from npusched.hardware import Target, load_target
from npusched.schedule import Plan, Planner
from tests.conftest import corpus_path


@dataclass(frozen=True)
class Ready:
    """A model on a target with everything that emission needs."""

    content: bytes
    target: Target
    template: Template
    prepared: Prepared
    planner: Planner
    match: KernelMatch

    def emit(self, plan: Plan) -> Emitted:
        """Streams of a plan."""
        model, graph = self.prepared.model, self.prepared.graph
        return emit_plan(self.template, model, graph, plan, match=self.match)

    def gate(self, emitted: Emitted) -> tuple[bytes, Gate]:
        """The file, and what the release gate says."""
        written = write_file(emitted)
        return written, check_file(written, emitted, self.target)


def content_of(name: str) -> bytes:
    """Bytes of a demo, or of a model of the corpus (by stem)."""
    folder = corpus_path()
    if folder is not None and (folder / "models" / f"{name}.tflite").exists():
        return (folder / "models" / f"{name}.tflite").read_bytes()
    return demo(name)


@lru_cache(maxsize=16)
def ready(name: str, config: str, allow: tuple[str, ...] = ()) -> Ready:
    """Prepare a model. ``allow``: switches of the planner."""
    return ready_from(content_of(name), config, allow)


def ready_from(content: bytes, config: str, allow: tuple[str, ...] = ()) -> Ready:
    """The same from the bytes of a file."""
    target = load_target(config)
    options = PlanOptions(candidates="none", use_cache=False, allow=allow)
    prepared = prepare(content, name="model", target=target, options=options)
    template = make_template(content, target)
    planner = options.planner(prepared.graph, target, prepared.sizes.of).given
    match = match_kernels(template, prepared.model, prepared.graph)
    return Ready(content, target, template, prepared, planner, match)
