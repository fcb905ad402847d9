"""From fused groups of work ops to the frozen scheduled ops and feature maps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from npusched.graph.fuse import Group
from npusched.graph.kinds import is_windowed
from npusched.graph.layout import choose_layout
from npusched.graph.shapes import ceil_div, pad_axes, shape4
from npusched.graph.types import (
    NOT_STORED,
    Access,
    FeatureMap,
    Kernel,
    KernelKind,
    Placement,
    ScheduledOp,
    Shape4,
    SubOp,
    Upscale,
    Weights,
)
from npusched.graph.work import Link, WorkGraph, WorkOp, WorkTensor
from npusched.hardware.target import Family
from npusched.ir import DataType, OpKind, Quantization, Shape


class _Ids(msgspec.Struct):
    """Numbers the stored tensors in order of first use; a variable keeps its number."""

    numbers: dict[object, int] = msgspec.field(default_factory=dict)
    tensors: list[WorkTensor] = msgspec.field(default_factory=list)

    def of(self, tensor: WorkTensor) -> int:
        key = (tensor.source, tensor.name) if tensor.is_persistent else tensor
        if key not in self.numbers:
            self.numbers[key] = len(self.tensors)
            self.tensors.append(tensor)
        return self.numbers[key]


def freeze(
    graph: WorkGraph, groups: Sequence[Group]
) -> tuple[tuple[ScheduledOp, ...], dict[int, FeatureMap]]:
    """Return the scheduled ops in order, and the feature maps that they use, by id."""
    ids = _Ids()
    for tensor in graph.inputs:
        ids.of(tensor)
    ops = tuple(_scheduled(n, group, ids, graph.family) for n, group in enumerate(groups))
    for tensor in graph.outputs:
        ids.of(tensor)
    maps = {
        number: _feature_map(number, tensor, graph.family)
        for number, tensor in enumerate(ids.tensors)
    }
    return ops, maps


def _feature_map(number: int, tensor: WorkTensor, family: Family | None) -> FeatureMap:
    quantization = None
    if tensor.scales:
        quantization = Quantization(
            scales=tensor.scales, zero_points=tensor.zero_points, axis=tensor.quant_axis
        )
    return FeatureMap(
        id=number,
        name=tensor.name,
        shape=shape4(tensor.shape),
        dtype=tensor.dtype,
        layout=choose_layout(tensor, family),
        is_graph_input=tensor.is_graph_input,
        is_graph_output=tensor.is_graph_output,
        is_constant=tensor.is_constant,
        is_persistent=tensor.is_persistent,
        quantization=quantization,
        source=tensor.source,
        data=tensor.data,
    )


def _merged_offset(offset: Shape, view: Shape) -> Shape4:
    """Return an offset in ``view`` with the axes before h merged into one index."""
    offset, view = pad_axes(offset, 4, 0), pad_axes(view, 4)
    index = 0
    for at, size in zip(offset[:-3], view[:-3], strict=True):
        index = index * size + at
    return (index, offset[-3], offset[-2], offset[-1])


def access(link: Link, tensor: int) -> Access:
    """Return the frozen form of a link to the tensor with number ``tensor``."""
    offset = (0,) * len(link.shape) if link.slice_offset is None else link.slice_offset
    return Access(
        tensor=tensor,
        shape=shape4(link.region),
        view=shape4(link.shape),
        dtype=link.element_type,
        offset=_merged_offset(offset, link.shape),
        step_h=link.step_h,
        step_w=link.step_w,
        zero_point=link.zero_point,
        scale=link.scale,
    )


def _scheduled(number: int, group: Group, ids: _Ids, family: Family | None) -> ScheduledOp:
    primary = group.primary
    ifms = tuple(access(link, ids.of(link.tensor)) for link in primary.ifms)
    if primary.cpu:
        return ScheduledOp(
            id=number,
            kind=KernelKind.CPU,
            placement=Placement.CPU,
            source_ops=primary.source_ops,
            ifms=ifms,
            ofms=tuple(access(link, ids.of(link.tensor)) for link in primary.ofms),
            name=primary.name,
            fusion_blocker=group.blocker,
        )
    if isinstance(primary.kind, OpKind):
        raise AssertionError(f"{primary.kind} was not lowered")
    written = group.members[group.writer].ofm
    stored = ids.of(written.tensor)
    last = len(group.members) - 1
    subs = tuple(
        _sub_op(group, index, ids, written if index == last else None)
        for index in range(1, last + 1)
    )
    own = group.own_ofms[0]
    return ScheduledOp(
        id=number,
        kind=primary.kind,
        placement=Placement.NPU,
        source_ops=primary.source_ops,
        ifms=ifms,
        ofms=(access(own, NOT_STORED if subs else stored),),
        kernel=_padded_kernel(primary, own),
        upscale=primary.upscale,
        weights=_weights(primary),
        has_scales=primary.weights is not None,
        accumulator_scaled=primary.accumulator_scaled,
        ofm_rescale=primary.ofm_rescale,
        ifm_rescales=primary.ifm_rescales,
        activation=primary.activation,
        transpose=primary.transpose,
        reverse=primary.reverse,
        resize=primary.resize,
        interpolate=primary.interpolate,
        sub_ops=subs,
        pieces=primary.pieces,
        keep_accumulators=primary.keep_accumulators,
        write_ofm=primary.write_ofm,
        scratch=_scratch(primary, ids, family),
        name=group.members[-1].name or primary.name,
        fusion_blocker=group.blocker,
    )


def _scratch(op: WorkOp, ids: _Ids, family: Family | None) -> Access | None:
    """Return the working memory of a matrix product on U55 and U65.

    It holds the products of one column of the result, and their sums behind them.
    """
    if op.kind is not KernelKind.MATMUL or family is Family.U85:
        return None
    n, h, w, c = shape4(op.ifm.region)
    tensor = WorkTensor(
        name=f"{op.name}/scratch",
        shape=(n, h, w, c + 1),
        dtype=DataType.INT32,
        writers=[op],
        readers=[op],
    )
    return access(Link(tensor, tensor.shape), ids.of(tensor))


def _padded_kernel(op: WorkOp, ofm: Link) -> Kernel:
    """Return the kernel with at least the padding after the IFM that its last window reads.

    A swallowed PAD may leave less than that (Vela's command stream states it, too).
    """
    kernel = op.kernel
    if not is_windowed(op.kind) or op.upscale is not Upscale.NONE:
        return kernel
    if (op.ifm.step_h, op.ifm.step_w) != (1, 1):
        return kernel
    _, ifm_h, ifm_w, _ = shape4(op.ifm.region)
    _, ofm_h, ofm_w, _ = shape4(ofm.region)
    ofm_h, ofm_w = ceil_div(ofm_h, ofm.step_h), ceil_div(ofm_w, ofm.step_w)
    bottom = (ofm_h - 1) * kernel.stride_h + kernel.dilated_h - kernel.pad_top - ifm_h
    right = (ofm_w - 1) * kernel.stride_w + kernel.dilated_w - kernel.pad_left - ifm_w
    return replace(
        kernel,
        pad_bottom=max(kernel.pad_bottom, bottom),
        pad_right=max(kernel.pad_right, right),
    )


def _sub_op(group: Group, index: int, ids: _Ids, written: Link | None) -> SubOp:
    op, own = group.members[index], group.own_ofms[index]
    assert isinstance(op.kind, KernelKind)
    chained = group.chained[index]
    before = group.own_ofms[index - 1].tensor
    chain_input = next((i for i in reversed(range(len(op.ifms))) if op.ifms[i].tensor is before), 0)
    external = [link for i, link in enumerate(op.ifms) if i != chain_input]
    ofm = access(own, NOT_STORED)
    if written is not None:
        ofm = access(written, ids.of(written.tensor))
    return SubOp(
        kind=op.kind,
        source_ops=op.source_ops,
        ofm=ofm,
        chained=chained,
        ifms=tuple(access(link, ids.of(link.tensor)) for link in external),
        chain_input=chain_input,
        chain_zero_point=op.ifms[chain_input].zero_point,
        activation=op.activation,
        ofm_rescale=op.ofm_rescale,
        ifm_rescales=op.ifm_rescales,
        transpose=op.transpose,
        reverse=op.reverse,
    )


def _weights(op: WorkOp) -> Weights | None:
    """Return the weights of a conv-like op with constant weights."""
    if op.weights is None or op.weights.tensor.data is None:
        return None
    tensor = op.weights.tensor
    bias = None
    if op.bias is not None and op.bias.tensor.data is not None:
        bias = tuple(int(v) for v in np.asarray(op.bias.tensor.data).reshape(-1).tolist())
    shape = pad_axes(tuple(op.weights.region), 4)
    key = tensor.name if tensor.source is None else f"{tensor.source}:{tensor.name}"
    return Weights(
        key=f"{key}{op.weights.slice_offset or ''}",
        shape=(shape[0], shape[1], shape[2], shape[3]),
        dtype=tensor.dtype,
        zero_points=tensor.zero_points or (0,),
        values=tensor.data,
        bias=bias,
        bias_dtype=op.bias.tensor.dtype if op.bias is not None else tensor.dtype,
        source=tensor.source,
    )
