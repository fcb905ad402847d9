"""Fusion groups: which op joins the kernel of the op before it, and what stops it.

Sources: LOWERING.md §6; Vela 5.2.0, ``compiler/scheduler_packing.cpp`` (CanPack, PackOperations),
``architecture/ethosu55/ethos_u55.cpp`` (EthosU55OpGroup),
``architecture/ethosu85/ethos_u85.cpp`` (EthosU85OpGroup).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import msgspec
from msgspec.structs import replace

from npusched.graph.kinds import (
    ACTIVATIONS,
    CLIPPING,
    CONVOLUTIONS,
    REARRANGING,
    is_binary,
    is_elementwise,
)
from npusched.graph.lower.scaling import dtype_range
from npusched.graph.shapes import equal_reduced
from npusched.graph.types import KernelKind, Reverse
from npusched.graph.work import Link, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import DataType, Shape

MAX_CHAIN = 4
"""Ops in a chain, the primary included; activations are not counted."""

MAX_EXTERNAL_INPUTS = 3
"""Inputs that a chain may read from memory."""

_CHAINABLE_TRANSPOSES_OF_ELEMENTWISE = frozenset({(0, 2, 1), (2, 0, 1)})
_NOT_CHAINED_FROM = frozenset({KernelKind.RESIZE, KernelKind.GATHER, KernelKind.SCATTER})
_COPIES_WIDE = frozenset(
    {KernelKind.MEMORY_COPY, KernelKind.TRANSPOSE, KernelKind.REVERSE, KernelKind.RESCALE}
)
_SCALAR_TYPES = (DataType.INT8, DataType.UINT8, DataType.INT16, DataType.INT32)


class Group(msgspec.Struct):
    """A kernel under construction: the primary op and its followers.

    ``own_ofms`` are the members' results before they are handed over, ``regions`` their shapes as
    they were when the members joined; ``chained`` tells chained members from fused ones;
    ``writer`` is the index of the member whose ``ofm`` link is what memory receives (the last
    that is not fused). ``blocker`` says why the next op stayed out.
    """

    members: list[WorkOp]
    family: Family
    own_ofms: list[Link]
    regions: list[Shape]
    writer: int = 0
    chain_length: int = 1
    external_inputs: int = 0
    rearranged: bool = False
    chained: list[bool] = msgspec.field(default_factory=lambda: [False])
    blocker: str = ""

    @property
    def primary(self) -> WorkOp:
        """The first op."""
        return self.members[0]


def fuse(order: Sequence[WorkOp], family: Family) -> list[Group]:
    """Return the groups of ``order`` (execution order after step 3); CPU ops stand alone."""
    groups: list[Group] = []
    for op in order:
        if groups:
            on_cpu = op.cpu or groups[-1].primary.cpu
            blocker = "CPU op" if on_cpu else _blocker(groups[-1], op)
            if not blocker:
                _join(groups[-1], op)
                continue
            groups[-1].blocker = blocker
        groups.append(_start(op, family))
    return groups


def _start(op: WorkOp, family: Family) -> Group:
    return Group(
        members=[op],
        family=family,
        own_ofms=[link.copy() for link in op.ofms],
        regions=[op.ofm.region],
        external_inputs=_external_inputs(op),
        rearranged=op.kind in REARRANGING
        and (op.transpose is not None or op.reverse is not Reverse.NONE),
    )


def writer_count(tensor: WorkTensor) -> int:
    """Return how many kernels write a tensor (equal pieces count one by one)."""
    return sum(op.count for op in tensor.writers)


def reader_count(tensor: WorkTensor) -> int:
    """Return how many inputs of kernels are read from a tensor."""
    return sum(op.count for op in tensor.readers)


def _blocker(group: Group, op: WorkOp) -> str:
    """Return why ``op`` cannot join ``group``, "" if it can."""
    primary, previous = group.primary, group.members[-1]
    out = previous.ofm
    link = next((i for i in reversed(op.ifms[:2]) if i.tensor is out.tensor), None)
    if link is None:
        return "reads another tensor"
    if op.kind not in ACTIVATIONS:
        if group.family is not Family.U85:
            return "not an activation"
        if op.kind not in REARRANGING and not is_elementwise(op.kind):
            return "not elementwise"
    if out.tensor.is_persistent != op.ofm.tensor.is_persistent:
        return "persistent tensor"
    if writer_count(out.tensor) != 1:
        return "several writers"
    if reader_count(out.tensor) != 1:
        return "second consumer"
    if not equal_reduced(out.shape, out.region):
        return "slice written"
    shape_blocker = _shape_blocker(primary, previous, op, link)
    if shape_blocker:
        return shape_blocker
    if primary.ofm.tensor.is_graph_output or out.tensor.is_graph_output:
        return "graph output"
    unscaled = op.ofm_rescale is None and not op.ifm_rescales
    if not is_elementwise(op.kind) and not unscaled:
        return "requantisation"
    if group.family is Family.U85:
        return _blocker_u85(group, op)
    return _blocker_u55(group)


def _shape_blocker(primary: WorkOp, previous: WorkOp, op: WorkOp, link: Link) -> str:
    out = previous.ofm
    if not equal_reduced(_offset(out), _offset(link), 0) or link.is_sliced:
        return "slice read"
    if out.shape == link.shape:
        return ""
    kernel = previous.kernel
    depends_on_shape = (
        primary.kind in CONVOLUTIONS
        or (kernel.dilated_h, kernel.dilated_w) != (1, 1)
        or (kernel.stride_h, kernel.stride_w) != (1, 1)
    )
    rearranges = op.transpose is not None or op.reverse is not Reverse.NONE
    if depends_on_shape or op.ofm.is_sliced or rearranges:
        return "reshape"
    return ""


def _offset(link: Link) -> Shape:
    return (0,) * len(link.shape) if link.slice_offset is None else link.slice_offset


def _blocker_u55(group: Group) -> str:
    primary = group.primary
    if len(group.members) >= 2:
        return "one activation per kernel"
    if primary.kind is KernelKind.MATMUL or (
        primary.kind is KernelKind.TRANSPOSE and primary.ofm.element_type.bits != 8
    ):
        return "compound op"
    if primary.kind in ACTIVATIONS:
        return "two activations"
    return ""


# --- U85 -----------------------------------------------------------------------------------


def _blocker_u85(group: Group, op: WorkOp) -> str:
    if op.kind in ACTIVATIONS or op.kind in REARRANGING:
        return _fusing_blocker(group, op)
    return _chaining_blocker(group, op)


def _fusing_blocker(group: Group, op: WorkOp) -> str:
    primary, previous = group.primary, group.members[-1]
    activation = op.kind in ACTIVATIONS
    if primary.kind in (KernelKind.GATHER, KernelKind.SCATTER):
        return "DMA op"
    if group.chain_length > 1 and not activation:
        return "transpose after a chain"
    if activation and previous.kind in ACTIVATIONS:
        return "two activations"
    if not activation and group.rearranged:
        return "two transposes"
    if op.kind is KernelKind.TRANSPOSE and primary.ofm.is_sliced:
        return "slice written"
    if op.kind in CLIPPING:
        low, high = dtype_range(previous.ifm.element_type)
        floor, ceiling = dtype_range(previous.ofm.element_type)
        if high > ceiling or low < floor:
            return "clamp after a narrowing result"
    if not _supports_rearranging(primary, op):
        return "transpose not supported by the kernel"
    return ""


def _supports_rearranging(primary: WorkOp, op: WorkOp) -> bool:
    elementwise = is_elementwise(primary.kind)
    if op.transpose is not None:
        if primary.kind in _NOT_CHAINED_FROM:
            return False
        if elementwise and op.transpose not in _CHAINABLE_TRANSPOSES_OF_ELEMENTWISE:
            return False
        if op.ofm.element_type.bits == 64:
            return False
    return op.reverse is Reverse.NONE or not elementwise


def _chaining_blocker(group: Group, op: WorkOp) -> str:
    primary, previous = group.primary, group.members[-1]
    wide = primary.ifm.element_type.bits >= 32
    if primary.kind in _NOT_CHAINED_FROM or (primary.kind in _COPIES_WIDE and wide):
        return "kernel starts no chain"
    external = _external_inputs(op)
    if external == 0:
        return "no input from memory"
    if group.rearranged:
        return "after a transpose"
    if group.chain_length + 1 > MAX_CHAIN:
        return "chain is full"
    if group.external_inputs + external - 1 > MAX_EXTERNAL_INPUTS:
        return "too many inputs"
    if group.regions[-1] != op.ofm.region:
        return "result is broadcast"
    return _chained_input_blocker(group.regions[0], previous.ofm.tensor, op)


def _chained_input_blocker(target: Shape, tensor: WorkTensor, op: WorkOp) -> str:
    """Check the shape of the input that comes from ``tensor``; ``target``: the primary's result."""
    if not is_binary(op.kind):
        return "" if prod(target) == prod(op.ifm.region) else "shape"
    position = 0 if op.ifms[0].tensor is tensor else 1
    chained, other = op.ifms[position].region, op.ifms[1 - position].region
    matching_elements = prod(chained) == prod(target)
    if chained != other and chained != target and not (matching_elements and prod(other) == 1):
        return "broadcast"
    return ""


def _external_inputs(op: WorkOp) -> int:
    """Return the inputs of ``op`` that are not constant scalars."""
    return sum(
        1
        for link in op.ifms[:2]
        if not (link.tensor.is_constant and prod(link.region) == 1 and _takes_scalar(op, link))
    )


def _takes_scalar(op: WorkOp, link: Link) -> bool:
    """Return True if the kernel can hold a constant scalar in its registers."""
    return is_elementwise(op.kind) and link.element_type in _SCALAR_TYPES


def _join(group: Group, op: WorkOp) -> None:
    """Add ``op``; a fused op's result becomes that of the member which writes, as in Vela."""
    chained = op.kind not in ACTIVATIONS and op.kind not in REARRANGING
    group.own_ofms.append(op.ofm.copy())
    group.regions.append(op.ofm.region)
    if chained:
        group.external_inputs += _external_inputs(op) - 1
        group.chain_length += 1
        _inherit_shape(group, op)
        group.writer = len(group.members)
    else:
        _hand_over_result(group.members[group.writer], op)
        if op.kind not in REARRANGING:
            group.own_ofms[-1].shape = op.ofm.shape
            group.own_ofms[-1].slice_offset = group.own_ofms[-1].slice_shape = None
        group.rearranged = group.rearranged or op.kind in REARRANGING
    group.members.append(op)
    group.chained.append(chained)


def _hand_over_result(writer: WorkOp, op: WorkOp) -> None:
    """Let ``writer`` write the result of ``op``, which is fused into it."""
    old, new = writer.ofm, op.ofm
    old.tensor.writers.remove(writer)
    new.tensor.writers.remove(op)
    new.tensor.writers.append(writer)
    taken = replace(old, tensor=new.tensor, dtype=new.element_type)
    if op.kind in REARRANGING or new.slice_offset is not None:
        taken.shape = new.shape
        taken.slice_offset, taken.slice_shape = new.slice_offset, new.slice_shape
    writer.ofms[0] = taken
    if op.kind not in REARRANGING:
        op.ifm.shape = new.shape = taken.shape
        new.slice_offset = new.slice_shape = None


def _inherit_shape(group: Group, op: WorkOp) -> None:
    """Give a chained op the shape of the primary's result, where no input is broadcast."""
    shape = group.primary.ofm.shape
    result = prod(op.ofm.shape)
    if is_binary(op.kind):
        scalar = [prod(link.shape) == 1 for link in op.ifms]
        broadcast = [prod(link.shape) != result for link in op.ifms]
        if scalar[0] and not broadcast[1]:
            op.ifms[1].shape = op.ofm.shape = shape
        elif scalar[1] and not broadcast[0]:
            op.ifms[0].shape = op.ofm.shape = shape
        elif not any(broadcast):
            op.ifms[0].shape = op.ifms[1].shape = op.ofm.shape = shape
    else:
        op.ifm.shape = op.ofm.shape = shape
