"""The mutable graph that lowering rewrites; frozen into scheduled ops at the end.

It lives only inside ``build_graph``. An op starts as a TFLite op (``kind`` is an ``OpKind``) and
ends as a kernel (``kind`` is a ``KernelKind``). Tensors keep lists of their readers and writers;
use the methods of ``WorkGraph`` so that both sides stay true.

Order of work (Vela 5.2.0 runs its rewrites in three layers, and we keep them):

1. ``LOWERINGS[OpKind](graph, op)`` of ``graph.lower.registry``: once per TFLite op on the NPU,
   walking from the graph's outputs. Rewrites the op into kernels and views *in the rank of the
   file*. Position in ``graph.ops`` means nothing yet: the execution order is found later from the
   tensors (depth first from the outputs; the last input of an op, and the last *writer* of a
   tensor, run first), so the order of ``ifms`` and the order in which writers are added matter.
   An op that needs step 3 (a transpose, a reduction, a matrix product, a resize, a transpose
   convolution, batches) leaves one whole WorkOp with the ``KernelKind`` it will have, or keeps its
   ``OpKind`` if it has none. A view is a WorkOp with kind ``OpKind.RESHAPE``; a copy is
   ``KernelKind.MEMORY_COPY`` (slices on its links); both may be removed by step 2.
2. Data movement (``graph.moves``, ``graph.pads``): views removed or turned into copies, pads
   swallowed, transposes merged, slices moved into readers and writers.
3. In execution order, ``DECOMPOSITIONS[kind](graph, op)`` (key: OpKind or KernelKind): cuts an op
   that the hardware cannot run in one go. Links are padded to 4 axes by now (rank above 4 stays).
   The function adds the pieces ``before=op``, in the order in which they run, and removes ``op``;
   it leaves ``op`` alone when nothing is to be done. Equal pieces may be one op with ``pieces``.
   During step 3 ``graph.ops`` holds only the op in hand.

Scaling is explicit: ``ofm_rescale`` None is unit (multiplier 1, shift 0), ``ifm_rescales`` () is
unit. ``Link.scale`` keeps the tensor's real scale as information. Only unit-scaled activations
fuse.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from npusched.graph.types import (
    Activation,
    Kernel,
    KernelKind,
    Pieces,
    Rescale,
    Reverse,
    Rounding,
    SourceRef,
    Upscale,
)
from npusched.hardware.target import Family
from npusched.ir import DataType, OpKind, Options, Shape
from npusched.ir.options import NoOptions


class WorkTensor(msgspec.Struct, eq=False):
    """A tensor under rewriting. Empty ``scales`` = not quantised; several = per channel.

    ``readers`` and ``writers`` have one entry per link (an op that reads a tensor twice is listed
    twice), in the order in which the links were made.
    """

    name: str
    shape: Shape
    dtype: DataType
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    quant_axis: int | None = None
    data: npt.NDArray[np.generic] | None = None
    source: tuple[int, int] | None = None
    is_graph_input: bool = False
    is_graph_output: bool = False
    is_persistent: bool = False
    writers: list[WorkOp] = msgspec.field(default_factory=list)
    readers: list[WorkOp] = msgspec.field(default_factory=list)

    @property
    def is_constant(self) -> bool:
        """True if the values are known."""
        return self.data is not None

    @property
    def is_single_path(self) -> bool:
        """True if one link writes the tensor and one link reads it."""
        return len(self.writers) == 1 and len(self.readers) == 1


class Link(msgspec.Struct, eq=False):
    """One use of a tensor by an op (regor calls it a tensor connection).

    ``shape`` is the whole tensor as this op sees it (a reshaped view has another shape than the
    tensor); ``slice_offset``/``slice_shape`` select a part of that view, before ``step_h`` and
    ``step_w`` skip rows and columns of it. ``scale``/``zero_point`` are what the op applies,
    usually the tensor's; None scale = unit (no rescale from this side). ``dtype`` is set where
    the op reads the bytes as another type than the tensor's.
    """

    tensor: WorkTensor
    shape: Shape
    slice_offset: Shape | None = None
    slice_shape: Shape | None = None
    step_h: int = 1
    step_w: int = 1
    scale: float | None = None
    zero_point: int = 0
    dtype: DataType | None = None

    @property
    def region(self) -> Shape:
        """Shape of what is touched: the slice, or the whole view."""
        return self.slice_shape if self.slice_shape is not None else self.shape

    @property
    def element_type(self) -> DataType:
        """The type as the op sees it."""
        return self.tensor.dtype if self.dtype is None else self.dtype

    @property
    def is_sliced(self) -> bool:
        """True if the op touches only a part of the view."""
        return self.slice_shape is not None and self.slice_shape != self.shape

    def copy(self) -> Link:
        """Return an independent link to the same tensor."""
        return replace(self)


class WorkOp(msgspec.Struct, eq=False):
    """An op under rewriting.

    ``ifms``: feature-map inputs in order; ``weights``/``bias`` of conv-like ops; ``params``: other
    constant inputs of a TFLite op (axes, shapes, block sizes), by position in the file.
    ``cpu``: stays on the host. ``source_ops`` names the TFLite ops that it stands for.
    ``perm`` is the whole permutation of a transpose (OFM axis i is IFM axis perm[i]) until step 3
    turns it into ``transpose`` (h, w, c only); ``axis`` that of a reduction or ArgMax, in IFM
    rank. ``pad_value`` is what OpKind.PAD fills with, as stored. ``keep_accumulators`` starts
    from the previous op's accumulators, ``write_ofm`` False leaves the result in them (U85).
    ``interpolate``: see ``ScheduledOp``. ``axis`` is best negative (counted from the end): padding
    the links to four axes then keeps it.
    """

    kind: OpKind | KernelKind
    source_ops: tuple[SourceRef, ...]
    ifms: list[Link] = msgspec.field(default_factory=list)
    ofms: list[Link] = msgspec.field(default_factory=list)
    weights: Link | None = None
    bias: Link | None = None
    params: dict[int, WorkTensor] = msgspec.field(default_factory=dict)
    options: Options = msgspec.field(default_factory=NoOptions)
    kernel: Kernel = msgspec.field(default_factory=Kernel)
    upscale: Upscale = Upscale.NONE
    rounding: Rounding | None = None
    ofm_rescale: Rescale | None = None
    ifm_rescales: tuple[Rescale, ...] = ()
    activation: Activation | None = None
    transpose: tuple[int, int, int] | None = None
    perm: tuple[int, ...] | None = None
    axis: int | None = None
    pad_value: int = 0
    reverse: Reverse = Reverse.NONE
    resize: tuple[int, int, int, int] | None = None
    interpolate: bool = False
    accumulator_scaled: bool = True
    keep_accumulators: bool = False
    write_ofm: bool = True
    cpu: bool = False
    pieces: Pieces | None = None
    name: str = ""

    @property
    def ofm(self) -> Link:
        """The first (for kernels: only) result."""
        return self.ofms[0]

    @property
    def ifm(self) -> Link:
        """The primary input."""
        return self.ifms[0]

    @property
    def count(self) -> int:
        """Number of equal pieces that this op stands for."""
        return 1 if self.pieces is None else self.pieces.count

    def clone(self) -> WorkOp:
        """Return an unregistered copy with links of its own."""
        return replace(
            self,
            ifms=[link.copy() for link in self.ifms],
            ofms=[link.copy() for link in self.ofms],
            weights=None if self.weights is None else self.weights.copy(),
            bias=None if self.bias is None else self.bias.copy(),
            params=dict(self.params),
        )


class WorkGraph(msgspec.Struct, eq=False):
    """One subgraph under rewriting."""

    family: Family | None
    subgraph: int
    tensors: list[WorkTensor] = msgspec.field(default_factory=list)
    inputs: list[WorkTensor] = msgspec.field(default_factory=list)
    outputs: list[WorkTensor] = msgspec.field(default_factory=list)
    _ops: dict[WorkOp, None] = msgspec.field(default_factory=dict)

    @property
    def ops(self) -> list[WorkOp]:
        """The ops, as a new list; in execution order only where a pass says so."""
        return list(self._ops)

    @property
    def has_persistent(self) -> bool:
        """True if a tensor keeps its value between runs (LSTM state, variables)."""
        return any(tensor.is_persistent for tensor in self.tensors)

    def holds(self, op: WorkOp) -> bool:
        """Return True while ``op`` has not been removed."""
        return op in self._ops

    def new_tensor(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        *,
        scale: float | None = None,
        zero_point: int = 0,
        data: npt.NDArray[np.generic] | None = None,
    ) -> WorkTensor:
        """Add a temporary (or, with ``data``, a constant) tensor."""
        tensor = WorkTensor(
            name=name,
            shape=shape,
            dtype=dtype,
            scales=() if scale is None else (scale,),
            zero_points=() if scale is None else (zero_point,),
            data=data,
        )
        self.tensors.append(tensor)
        return tensor

    def link(self, tensor: WorkTensor, shape: Shape | None = None) -> Link:
        """Return a use of ``tensor`` with its own quantisation, seen as ``shape``."""
        return Link(
            tensor=tensor,
            shape=tensor.shape if shape is None else shape,
            scale=tensor.scales[0] if tensor.scales else None,
            zero_point=tensor.zero_points[0] if tensor.zero_points else 0,
        )

    def add(self, op: WorkOp, *, before: WorkOp | None = None) -> WorkOp:
        """Insert ``op`` (at the end, or before another op) and register it with its tensors."""
        if before is None:
            self._ops[op] = None
        else:
            order = list(self._ops)
            order.insert(order.index(before), op)
            self._ops = dict.fromkeys(order)
        for link in (*op.ifms, op.weights, op.bias):
            if link is not None:
                link.tensor.readers.append(op)
        for parameter in op.params.values():
            parameter.readers.append(op)
        for link in op.ofms:
            link.tensor.writers.append(op)
        return op

    def remove(self, op: WorkOp) -> None:
        """Take ``op`` out and unregister it from its tensors."""
        del self._ops[op]
        for link in (*op.ifms, op.weights, op.bias):
            if link is not None:
                link.tensor.readers.remove(op)
        for parameter in op.params.values():
            parameter.readers.remove(op)
        for link in op.ofms:
            link.tensor.writers.remove(op)

    def replace_ifm(self, op: WorkOp, position: int, link: Link) -> None:
        """Make input ``position`` of ``op`` read ``link``."""
        op.ifms[position].tensor.readers.remove(op)
        op.ifms[position] = link
        link.tensor.readers.append(op)

    def replace_ofm(self, op: WorkOp, link: Link, position: int = 0) -> None:
        """Make ``op`` write ``link``."""
        op.ofms[position].tensor.writers.remove(op)
        op.ofms[position] = link
        link.tensor.writers.append(op)

    def set_ops(self, ops: list[WorkOp]) -> None:
        """Make ``ops`` (already registered with their tensors) the ops of the graph."""
        self._ops = dict.fromkeys(ops)
