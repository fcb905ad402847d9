"""``Builder``: writes .tflite models for demos and tests, deterministically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npusched.ir import ActivationKind, OpKind
from npusched.ir.options import LstmOptions, NoOptions, SvdfOptions, VarHandleOptions
from npusched.tflite.build_compute import ComputeBuilder
from npusched.tflite.build_move import MoveBuilder
from npusched.tflite.build_pointwise import PointwiseBuilder
from npusched.tflite.build_reduce import ReduceBuilder
from npusched.tflite.encode import encode
from npusched.tflite.graph_builder import FileState, GraphBuilder, Ref, TypeName
from npusched.tflite.quantize import Spread, normal, quantize_weights
from npusched.tflite.records import Record, Value


class SubgraphBuilder(ComputeBuilder, ReduceBuilder, PointwiseBuilder, MoveBuilder):
    """Builds one subgraph; every method adds an op and returns its result."""

    def lstm(
        self,
        x: Ref,
        cells: int,
        *,
        time_major: bool = False,
        cell_clip: float = 0.0,
        name: str = "",
    ) -> Ref:
        """UNIDIRECTIONAL_SEQUENCE_LSTM, fully quantised (int8, int16 cells), no peepholes.

        ``x``: int8 [batch, time, features] (or time major); result int8 [batch, time, cells].
        """
        label = name or f"lstm{len(self.ops)}"
        batch = x.shape[1] if time_major else x.shape[0]
        hidden = self.variable(f"{label}/hidden", (batch, cells), "int8", scale=1 / 128)
        cell = self.variable(f"{label}/cell", (batch, cells), "int16", scale=2.0**-11)
        gates = [self._gate(x, hidden, cells, f"{label}/{gate}") for gate in "ifco"]
        inputs: list[Ref | None] = [None] * 24
        inputs[0], inputs[18], inputs[19] = x, hidden, cell
        for index, (feature, recurrent, bias) in enumerate(gates):
            inputs[1 + index], inputs[5 + index], inputs[12 + index] = feature, recurrent, bias
        steps = [self.tensor(f"{label}/step{i}", (0,), "float32") for i in range(4)]
        steps.append(self.tensor(f"{label}/step4", (0,), "int8", scale=1 / 128))
        options = LstmOptions(
            activation=ActivationKind.TANH, cell_clip=cell_clip, time_major=time_major
        )
        spread = Spread(0.0, 0.3, -1.0, 1.0)
        shape = (*x.shape[:2], cells)
        out = self.tensor(label, shape, x.dtype, scale=1 / 128, zero_point=0, spread=spread)
        kind = OpKind.UNIDIRECTIONAL_SEQUENCE_LSTM
        self.op(kind, inputs, [out], options, version=1, intermediates=steps)
        return out

    def _gate(self, x: Ref, hidden: Ref, cells: int, name: str) -> tuple[Ref, Ref, Ref]:
        """Weights of one gate: of the features, of the state, and the bias."""
        found = []
        for part, depth in (("input", x.shape[-1]), ("recurrent", cells)):
            real = normal(self.file.seed, self.file.next_salt(), (cells, depth)) * depth**-0.5
            stored, scales, zeros = quantize_weights(real, hidden.dtype, None)
            found.append(
                self.const(stored, "int8", name=f"{name}/{part}", scale=scales, zero_point=zeros)
            )
        scale = (x.scale or 1.0) * (found[0].scale or 1.0)
        real_bias = 0.1 * normal(self.file.seed, self.file.next_salt(), (cells,))
        bias = self.const((real_bias / scale).round(), "int32", name=f"{name}/bias", scale=scale)
        return found[0], found[1], bias

    def svdf(self, x: Ref, units: int, *, rank: int = 1, memory: int = 8, name: str = "") -> Ref:
        """SVDF, int8 with an int16 state, and the time weights in int16."""
        label, filters = name or f"svdf{len(self.ops)}", units * rank
        features, _ = self.weights(
            (filters, x.shape[1]),
            x,
            fan_in=x.shape[1],
            axis=0,
            per_channel=False,
            name=f"{label}/feature",
        )
        time = self.real_const(
            normal(self.file.seed, self.file.next_salt(), (filters, memory)) * memory**-0.5,
            "int16",
            name=f"{label}/time",
        )
        state = self.variable(
            f"{label}/state", (x.shape[0], memory * filters), "int16", scale=2.0**-12
        )
        bias = self.bias(units, state, (time.scale or 1.0,), name=f"{label}/bias")
        bias = self.const(
            bias.values if bias.values is not None else 0,
            "int32",
            name=f"{label}/bias32",
            scale=2.0**-12 * (time.scale or 1.0),
        )
        options = SvdfOptions(rank=rank, activation=ActivationKind.RELU)
        return self.apply(
            OpKind.SVDF,
            [x, features, time, bias, state],
            options,
            name=label,
            spread=Spread(),
            activation=ActivationKind.RELU,
        )

    def var_handle(self, shared_name: str, *, container: str = "") -> Ref:
        """VAR_HANDLE: a resource that names a variable."""
        found = self.tensor(f"{shared_name}/handle", (), "resource")
        options = VarHandleOptions(container=container, shared_name=shared_name)
        self.op(OpKind.VAR_HANDLE, [], [found], options)
        return found

    def read_variable(
        self,
        handle: Ref,
        shape: tuple[int, ...],
        dtype: TypeName = "int8",
        *,
        scale: float | None = None,
        zero_point: int = 0,
        name: str = "",
    ) -> Ref:
        """READ_VARIABLE."""
        label = name or f"read{len(self.ops)}"
        found = self.tensor(label, shape, dtype, scale=scale, zero_point=zero_point)
        self.op(OpKind.READ_VARIABLE, [handle], [found], NoOptions())
        return found

    def assign_variable(self, handle: Ref, value: Ref) -> None:
        """ASSIGN_VARIABLE."""
        self.op(OpKind.ASSIGN_VARIABLE, [handle, value], [], NoOptions())


class Builder(SubgraphBuilder):
    """Builds a model file; its own methods build subgraph 0.

    ``b = Builder("m"); x = b.input("x", (1, 8, 8, 3)); b.output(b.conv2d(x, 16)); b.build()``.
    Weights are random, but follow from ``seed`` alone: the same calls give the same bytes on
    every machine. Scales follow a rough estimate of every tensor's spread, so that results are
    neither saturated nor all zero.
    """

    def __init__(self, name: str = "main", *, seed: int = 0, description: str = "") -> None:
        super().__init__(name, FileState(seed))
        self.description = description
        self.graphs: list[GraphBuilder] = [self]
        self.signatures: list[Record] = []

    def subgraph(self, name: str) -> SubgraphBuilder:
        """Start another subgraph (its ``index`` is what CALL_ONCE, WHILE, ... name)."""
        graph = SubgraphBuilder(name, self.file, len(self.graphs))
        self.graphs.append(graph)
        return graph

    def signature(
        self,
        key: str,
        inputs: Mapping[str, Ref],
        outputs: Mapping[str, Ref],
        *,
        subgraph: GraphBuilder | None = None,
    ) -> None:
        """Name an entry point."""

        def named(refs: Mapping[str, Ref]) -> tuple[Record, ...]:
            return tuple(
                Record("TensorMap", {"name": name, "tensor_index": ref.index})
                for name, ref in refs.items()
            )

        self.signatures.append(
            Record(
                "SignatureDef",
                {
                    "inputs": named(inputs),
                    "outputs": named(outputs),
                    "signature_key": key,
                    "subgraph_index": subgraph.index if subgraph is not None else 0,
                },
            )
        )

    def model(self, metadata: Sequence[tuple[str, bytes]] = ()) -> Record:
        """The whole file as a record tree; ``metadata`` are named blobs."""
        named = tuple(
            Record("Metadata", {"name": name, "buffer": self.file.buffer(raw)})
            for name, raw in metadata
        )
        values: dict[str, Value] = {
            "version": 3,
            "operator_codes": self.file.code_records(),
            "subgraphs": tuple(graph.record() for graph in self.graphs),
            "description": self.description,
            "buffers": tuple(self.file.buffers),
        }
        if named:
            values["metadata"] = named
        if self.signatures:
            values["signature_defs"] = tuple(self.signatures)
        return Record("Model", values)

    def build(self, metadata: Sequence[tuple[str, bytes]] = ()) -> bytes:
        """The bytes of the .tflite file."""
        return encode(self.model(metadata))
