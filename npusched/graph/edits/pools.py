"""Pools and means beyond the limits: two smaller pools, or a pool instead of a MEAN."""

from __future__ import annotations

from msgspec.structs import replace

from npusched.graph.edits.uses import Uses
from npusched.ir import ActivationKind, Model, Op, OpKind, Padding, Subgraph
from npusched.ir.options import PoolOptions, ReduceOptions
from npusched.tflite.editor import Editor

_POOLS = frozenset({OpKind.AVERAGE_POOL_2D, OpKind.MAX_POOL_2D})


def pools_in_two(model: Model, subgraph: int, op: int) -> list[tuple[str, bytes]]:
    """Return (description, file) of every way tried to pool in two steps; none if there is none.

    A maximum stays the same. An average is rounded twice: results may move by a step.
    """
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    options = source.options
    if source.kind not in _POOLS or not isinstance(options, PoolOptions):
        return []
    if options.padding is Padding.SAME and not _unpadded(graph, source, options):
        return []
    found = []
    for first, second in _steps(source.kind, options):
        text = (
            f"{first.filter_h}x{first.filter_w} stride {first.stride_h}x{first.stride_w}, then "
            f"{second.filter_h}x{second.filter_w} stride {second.stride_h}x{second.stride_w}"
        )
        found.append((text, _two(model, subgraph, source, first, second)))
    return found


def _unpadded(graph: Subgraph, op: Op, options: PoolOptions) -> bool:
    """True if SAME adds nothing: the windows tile the input."""
    _, h, w, _ = graph.tensors[op.inputs[0]].shape
    tiles = (options.filter_h, options.filter_w) == (options.stride_h, options.stride_w)
    return tiles and h % options.stride_h == 0 and w % options.stride_w == 0


def _steps(kind: OpKind, options: PoolOptions) -> list[tuple[PoolOptions, PoolOptions]]:
    """Pairs of VALID pools that do the same: windows that tile in factors, maxima in a chain."""
    plain = replace(options, padding=Padding.VALID, activation=ActivationKind.NONE)
    last = replace(options, padding=Padding.VALID)
    pairs = []
    tiles_h, tiles_w = options.filter_h == options.stride_h, options.filter_w == options.stride_w
    for h in _factors(options.filter_h) if tiles_h else [1]:
        for w in _factors(options.filter_w) if tiles_w else [1]:
            if (h, w) in ((1, 1), (options.filter_h, options.filter_w)):
                continue
            first = replace(plain, filter_h=h, stride_h=h, filter_w=w, stride_w=w)
            second = replace(
                last,
                filter_h=options.filter_h // h,
                stride_h=options.stride_h // h,
                filter_w=options.filter_w // w,
                stride_w=options.stride_w // w,
            )
            pairs.append((first, second))
    pairs.sort(key=lambda pair: abs(_area(pair[0]) - _area(pair[1])))
    if kind is OpKind.MAX_POOL_2D and not pairs:
        half_h, half_w = (options.filter_h + 1) // 2, (options.filter_w + 1) // 2
        first = replace(plain, filter_h=half_h, filter_w=half_w, stride_h=1, stride_w=1)
        second = replace(
            last, filter_h=options.filter_h - half_h + 1, filter_w=options.filter_w - half_w + 1
        )
        pairs.append((first, second))
    return pairs[:3]


def _area(options: PoolOptions) -> int:
    return options.filter_h * options.filter_w


def _factors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _two(model: Model, subgraph: int, op: Op, first: PoolOptions, second: PoolOptions) -> bytes:
    editor = Editor(model, subgraph)
    with editor.before(op.index):
        x = editor.ref(op.inputs[0])
        between = editor.apply(op.kind, [x], first, name=f"pool_{op.index}_first", like=x)
    editor.set_inputs(op.index, [between.index])
    editor.set_options(op.index, second)
    return editor.content()


def mean_as_pool(model: Model, subgraph: int, op: int) -> bytes | None:
    """Return the file with a MEAN over height and width as an average pool (and a reshape).

    The quantisation of input and result may differ: the pool keeps that of the input, and a
    QUANTIZE follows. Results may move by a step.
    """
    graph = model.subgraphs[subgraph]
    uses, source = Uses(graph), graph.ops[op]
    if source.kind is not OpKind.MEAN:
        return None
    data, axes = graph.tensors[source.inputs[0]], uses.tensor(source, 1)
    result = uses.result(source)
    if axes is None or axes.data is None or len(data.shape) != 4:
        return None
    if {int(a) % 4 for a in axes.data.reshape(-1)} != {1, 2}:
        return None
    editor = Editor(model, subgraph)
    with editor.before(op):
        x = editor.ref(data.index)
        size = (data.shape[1], data.shape[2])
        x = editor.avg_pool2d(x, size, stride=size, name=f"mean_{op}_pool")
        if len(result.shape) != 4:
            x = editor.reshape(x, result.shape, name=f"mean_{op}_flat")
        editor.op(OpKind.QUANTIZE, [x], [editor.ref(result.index)])
    editor.remove(op)
    return editor.content()


def pool_as_mean(model: Model, subgraph: int, op: int) -> bytes | None:
    """Return the file with a global average pool as a MEAN. Results may move by a step."""
    graph = model.subgraphs[subgraph]
    source = graph.ops[op]
    options = source.options
    if source.kind is not OpKind.AVERAGE_POOL_2D or not isinstance(options, PoolOptions):
        return None
    data, result = graph.tensors[source.inputs[0]], graph.tensors[source.outputs[0]]
    if result.shape[1:3] != (1, 1) or (options.filter_h, options.filter_w) != data.shape[1:3]:
        return None
    if options.activation is not ActivationKind.NONE:
        return None
    editor = Editor(model, subgraph)
    with editor.before(op):
        axes = editor.const((1, 2), "int32", name=f"pool_{op}_axes")
        editor.op(
            OpKind.MEAN,
            [editor.ref(data.index), axes],
            [editor.ref(result.index)],
            ReduceOptions(keep_dims=True),
        )
    editor.remove(op)
    return editor.content()
