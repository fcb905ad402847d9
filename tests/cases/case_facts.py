"""Every fact that the cases expect: the command that states it, the field, and the value.

By case, one list per fact in the order of ``expected`` in CASES.json; the key of a fact is a digest
of its text, so that a changed or new one is noticed. Facts about other versions are listed with
the reason why they do not apply.
"""

from __future__ import annotations

from tests.cases.stated import (
    Entry,
    NotApplicable,
    Stated,
    alive_for,
    at_most,
    between,
    each,
    kib,
    near,
    says,
    total,
)

PEAK = "explain MODEL peak"
VELA = "explain MODEL vela"
FALLBACKS = "explain MODEL fallbacks"
MODE = "explain MODEL mode"
FUSION = "explain MODEL fusion"
PLAN = "plan MODEL"
NO_CPU = Stated(FALLBACKS, "fallbacks.ops#", 0)
ASKED = "vela.runs[0]"
SIZE = "vela.runs[options=Size,asked_bytes=null]"

YOLO_LIMITS = " ".join(f"--arena-cache-size {n}" for n in (60_000, 500_000, 1_100_000, 3_000_000))
MV2_LIMITS = " ".join(
    f"--arena-cache-size {n}" for n in (100_000, 200_000, 300_000, 400_000, 900_000, 1_200_000)
)
CHAN17 = f"{VELA} --arena-cache-size 120000"
YOLO = f"{VELA} {YOLO_LIMITS}"
MV2 = f"{VELA} {MV2_LIMITS}"
ATTENTION = f"{VELA} --arena-cache-size 100000 --arena-cache-size 800000"


CRNN = f"{VELA} --arena-cache-size 16KiB"
CHAN16 = "explain CASE:chan16 vela"

_COSTS: list[Entry] = [
    Stated(VELA, f"{ASKED}.npu_cycles", 12_980),
    Stated(VELA, f"{ASKED}.memory_cycles.sram", 112),
    Stated(VELA, f"{ASKED}.reported_cycles", 83_216),
    Stated("explain MODEL op 0", "op.resources[name=npu].busy_cycles", 12_980),
    Stated("explain MODEL op 0", "op.resources[name=sram].busy_cycles", 112),
    Stated("explain MODEL op 0", "op.resources[name=flash].busy_cycles", 83_216),
]
"""What fc_640_128 and the convolution that does the same must both cost."""

_TWO_READERS: list[Entry] = [
    Stated(PLAN, "source_ops[3].kind", "LOGISTIC"),
    Stated(PLAN, "source_ops[4].kind", "STRIDED_SLICE"),
    Stated(PLAN, "", alive_for("Relu;Conv2D_copy", 3, 4)),
    Stated("prove MODEL --plan --inputs 2", "verdict", "equal"),
]
"""The map that LOGISTIC and the slice read lives until both have run, nothing else lies on it,

and the plan, executed at its addresses, gives the reference's outputs.
"""


def run(asked: int | str, options: str = "Performance") -> str:
    """Path of the run for a limit."""
    return f"vela.runs[options={options},asked_bytes={asked}]"


FACTS: dict[str, dict[str, list[Entry]]] = {
    "chan16": {
        "03421434": [Stated(PEAK, "peak.padding_bytes", 0)],
        "2e65dff9": [
            Stated(VELA, f"{ASKED}.used_bytes", kib(515.05)),
            Stated(VELA, f"{SIZE}.used_bytes", kib(56.0)),
        ],
    },
    "chan17": {
        "2663a02a": [
            Stated(PEAK, "peak.naive_peak_bytes", 557_056),
            Stated(PEAK, "peak.shares[role=activation].size_bytes", 1_048_576),
            Stated(PEAK, "peak.padding_bytes", 1_048_576 - 557_056),
            Stated(PEAK, "peak.stored_channels", 32),
        ],
        "c19d7783": [
            Stated(CHAN17, f"{ASKED}.used_bytes", kib(1027.84)),
            Stated(CHAN17, f"{ASKED}.used_bytes", near(2.0), over=f"{CHAN16}|{ASKED}.used_bytes"),
            Stated(
                CHAN17,
                f"{ASKED}.reported_cycles",
                near(2.37),
                over=f"{CHAN16}|{ASKED}.reported_cycles",
            ),
            Stated(CHAN17, "model.macs", near(1.12), over=f"{CHAN16}|model.macs"),
        ],
        "82675902": [
            Stated(CHAN17, f"{run(120_000)}.used_bytes", kib(112.42)),
            Stated(CHAN17, f"{run(120_000)}.reported_cycles", 1_872_527),
            Stated(CHAN17, f"{ASKED}.used_bytes", near(9.14), over=f"{run(120_000)}.used_bytes"),
            Stated(CHAN17, f"{ASKED}.worse_than", 2),
        ],
        "2ef63828": [
            Stated(PEAK, "sentences", says("17 channels are stored as 32", "16 would save them")),
            Stated(PEAK, "peak.levers[id=within_10_percent].sram_peak_bytes", at_most(128 * 1024)),
            Stated(PEAK, "peak.levers[id=within_10_percent].cycles", near(1_872_661, 0.1)),
        ],
    },
    "yolo_stem_640": {
        "87b55cbb": [
            Stated(YOLO, "model.naive_peak_bytes", 4_915_200),
            Stated(YOLO, "model.naive_peak_op", 2),
        ],
        "0d8d170f": [
            Stated(YOLO, f"{ASKED}.used_bytes", kib(3205.56)),
            Stated(YOLO, f"{SIZE}.used_bytes", kib(3205.56)),
        ],
        "a320c85e": [
            Stated(
                YOLO,
                "vela.runs[is_over=true*].asked_bytes",
                [60_000, 500_000, 1_100_000, 3_000_000],
            ),
            Stated(YOLO, "vela.runs[is_over=true*].used_bytes", each(kib(4030.0))),
            Stated(YOLO, "vela.runs[is_over=true*].reported_cycles", each(between(19.4e6, 24.4e6))),
            Stated(YOLO, f"{ASKED}.reported_cycles", 16_192_698),
            Stated(YOLO, "vela.runs[is_over=true*].worse_than", each(at_most(0))),
            Stated(YOLO, "sentences", says("A limit can make it worse", "without an error")),
        ],
        "1818dee6": [
            Stated(f"{PLAN} --sram 60000", "error.kind", "infeasible", exit_code=1),
            Stated(f"{PLAN} --sram 60000", "error.smallest_feasible_bytes", 2_083_840, exit_code=1),
            Stated(YOLO, f"{run(1_100_000)}.ours_cycles", None),
            Stated(YOLO, f"{run(3_000_000)}.ours_sram_bytes", at_most(3_000_000)),
            Stated(YOLO, f"{ASKED}.ours_cycles", at_most(16_192_698)),
        ],
    },
    "mv2_head_224": {
        "77d63aab": [
            Stated(MV2, "model.naive_peak_bytes", 112 * 112 * 96 + 56 * 56 * 96),
            Stated(MV2, "model.naive_peak_op", 4),
        ],
        "f5429bba": [
            Stated(MV2, f"{ASKED}.used_bytes", kib(1474.44)),
            Stated(MV2, "vela.runs[is_over=true*].asked_bytes", [100_000, 200_000, 300_000]),
            Stated(MV2, "vela.runs[is_over=true*].used_bytes", each(kib(353.5))),
            Stated(MV2, "sentences", says("without an error")),
        ],
        "66d73372": [
            Stated(MV2, f"{ASKED}.reported_cycles", 2_801_345),
            Stated(MV2, f"{run(900_000)}.reported_cycles", 2_821_733),
            Stated(MV2, f"{run(900_000)}.used_bytes", near(874 * 1024, 0.001)),
            Stated(MV2, f"{run(400_000)}.reported_cycles", 2_969_551),
            Stated(MV2, f"{run(400_000)}.used_bytes", kib(384.11)),
            Stated(MV2, f"{SIZE}.reported_cycles", 3_175_672),
            Stated(MV2, f"{SIZE}.used_bytes", kib(353.5)),
            Stated(MV2, f"{run(100_000)}.reported_cycles", 3_607_992),
            Stated(MV2, f"{run(100_000)}.worse_than", 1),
        ],
        "9013d192": [
            Stated(MV2, f"{run(1_200_000)}.reported_cycles", 3_097_477),
            Stated(
                MV2,
                f"{run(1_200_000)}.reported_cycles",
                between(1.001, 2),
                over=f"{run(900_000)}.reported_cycles",
            ),
        ],
    },
    "tconv_stride3": {
        "64cdaeab": [
            Stated(FALLBACKS, "fallbacks.ops[*].kind", ["TRANSPOSE_CONV"]),
            Stated(FALLBACKS, "fallbacks.ops[0].reasons[0].value", "3x3"),
            Stated(FALLBACKS, "fallbacks.ops[0].reasons[0].text", says("1x1", "2x2", "1x2", "2x1")),
            Stated(FALLBACKS, "fallbacks.families[family=ethos-u65].cpu_ops", 1),
            Stated(FALLBACKS, "fallbacks.npu_invocations", 2),
        ],
        "8cfe8163": [Stated(FALLBACKS, "fallbacks.families[family=ethos-u85].cpu_ops", 0)],
        "371fd937": [
            Stated(FALLBACKS, "fallbacks.macs", 39_424),
            Stated(FALLBACKS, "fallbacks.npu_macs", 13_824),
            Stated(FALLBACKS, "fallbacks.ops[0].macs", 25_600),
            Stated(VELA, f"{ASKED}.macs", 13_824),
        ],
    },
    "attn_197x64": {
        "fe70cd73": [
            NotApplicable("what Vela of late 2025 left to the CPU: our limits are those of 5.2"),
            Stated(FALLBACKS, "fallbacks.ops", []),
            Stated(FALLBACKS, "fallbacks.rules_of", "5.2"),
            Stated(FALLBACKS, "sentences", says("limits of Vela 5.2")),
        ],
        "91f2d45a": [
            Stated(ATTENTION, "model.naive_peak_bytes", 323_080),
            Stated(ATTENTION, f"{ASKED}.used_bytes", kib(1298.97)),
            Stated(ATTENTION, f"{ASKED}.used_bytes", near(4.1), over="model.naive_peak_bytes"),
            Stated(ATTENTION, "vela.runs[is_over=true*].used_bytes", each(kib(1262.03))),
            Stated(PEAK, "peak.parts[0].dtype", "int32"),
            Stated(PEAK, "peak.parts[0].kind", "SOFTMAX"),
            Stated(PEAK, "peak.parts[0].widened", 4.0),
            Stated(PEAK, "peak.temporary_bytes", between(1_240_000, 1_300_000)),
        ],
        "459a5761": [
            Stated("explain CASE:softmax_only_197 vela", "model.naive_peak_bytes", 310_472),
            Stated("explain CASE:softmax_only_197 vela", f"{ASKED}.used_bytes", kib(1286.66)),
        ],
    },
    "softmax_only_197": {
        "0c6a8461": [
            Stated(VELA, "model.naive_peak_bytes", 310_472),
            Stated(VELA, f"{ASKED}.used_bytes", kib(1286.66)),
            Stated(VELA, f"{ASKED}.constant_bytes", kib(607.5)),
            Stated(VELA, "model.const_bytes", 120),
        ],
    },
    "fc_640_128": {
        "f0b3c797": [*_COSTS],
        "6d34e4e3": [
            Stated("explain MODEL op 0", "op.cycles", 83_216),
            Stated("explain MODEL op 0", "op.bound_by", "weights"),
            Stated("explain MODEL op 0", "op.weights.read_bytes", 83_216),
            Stated(VELA, f"{ASKED}.flash_bytes", 83_216),
            Stated(MODE, "modes[memory_mode=Sram_Only].cycles", 12_940),
            Stated(
                MODE,
                "modes[memory_mode=Shared_Sram].cycles",
                near(6.4),
                over="modes[memory_mode=Sram_Only].cycles",
            ),
        ],
        "e4c9f908": [
            Stated(
                f"{VELA} --system-config Ethos_U55_Deep_Embedded",
                f"{ASKED}.reported_cycles",
                166_432,
            ),
        ],
        "8dd96ac8": [
            Stated("explain MODEL op 0", "op.source_macs", 81_920),
            Stated("explain MODEL op 0", "op.weights.raw_bytes", 81_920),
            Stated("explain MODEL op 0", "op.weights.encoded_bytes", 81_936),
        ],
    },
    "conv1x1_640_128": {
        "57bd70e7": [
            NotApplicable("94,574 NPU cycles were those of Vela 5.0"),
            *_COSTS,
            Stated("explain MODEL op 0", "op.cycles", 83_216),
        ],
    },
    "crnn_lstm": {
        "0d8dd925": [
            Stated(CRNN, "model.op_count", 4),
            Stated(CRNN, f"{ASKED}.operations", 837),
            Stated(CRNN, f"{ASKED}.kernels", 708),
            Stated("explain MODEL op 2", "op.kernels", 706),
            Stated(CRNN, "model.macs", 1_546_240),
            Stated(CRNN, f"{ASKED}.macs", 1_552_448),
        ],
        "92defbf9": [
            Stated(CRNN, f"{ASKED}.memory_cycles.flash", 1_520_976),
            Stated(CRNN, f"{ASKED}.reported_cycles", 1_583_302),
            Stated("explain MODEL op 2", "op.weights.reads", near(32.0, 0.02)),
            Stated("explain MODEL op 2", "op.weights.stored_bytes", near(46_000, 0.05)),
            Stated(MODE, "modes[memory_mode=Sram_Only].cycles", 311_282),
            Stated(
                CRNN,
                f"{ASKED}.reported_cycles",
                near(5.1),
                over=f"{MODE}|modes[memory_mode=Sram_Only].cycles",
            ),
        ],
        "96559636": [
            Stated("explain MODEL op 2", "sentences", says("read 32.0 times", "Sram_Only")),
            Stated("explain MODEL op 2", "op.resources[binds=true].name", "flash"),
            Stated(MODE, "sentences", says("Fastest: Sram_Only")),
        ],
    },
    "batch2_mean": {
        "435675c6": [
            Stated(FALLBACKS, "fallbacks.ops[*].kind", ["MEAN"]),
            Stated(FALLBACKS, "fallbacks.ops[0].reasons[0].text", says("batch 2", "at most 1")),
            Stated(FALLBACKS, "fallbacks.families[*].cpu_ops", [1, 1, 1]),
        ],
        "4c45b4f1": [
            Stated(PLAN, "source_ops[*].placement", ["npu", "cpu", "npu"]),
            Stated(PLAN, "totals.npu_invocations", 2),
        ],
    },
    "bn_after_maxpool": {
        "16c477ca": [
            Stated(PLAN, "source_ops[*].kind", ["MAX_POOL_2D", "MUL", "ADD", "CONV_2D"]),
            Stated(PLAN, "ops[kind=Conv2D].fused", ["Relu"]),
        ],
        "102a2beb": [
            Stated("explain MODEL op 0", "op.kernels", 225),
            Stated(VELA, f"{ASKED}.operations", 229),
            Stated(VELA, f"{ASKED}.cpu_ops", 0),
            Stated("explain MODEL op 0", "op.share", between(0.6, 0.9)),
        ],
        "d6272506": [
            Stated(FUSION, "fusion.batch_norms[0].source_ops", [1, 2]),
            Stated(FUSION, "fusion.batch_norms[0].into", 3),
            Stated(FUSION, "fusion.batch_norms[0].where", "behind"),
            Stated(FUSION, "sentences", says("the weights of #3 behind it could take it")),
        ],
    },
    "reshape_two_consumers": {
        "dbd8ff46": [*_TWO_READERS],
        "9d8aa688": [
            Stated("prove MODEL --plan --inputs 2", "verdict", "equal"),
            Stated("prove MODEL --plan --inputs 2", "outputs[*].differing", total(0)),
        ],
    },
    "grouped_conv": {
        "acb24b32": [
            Stated(VELA, "model.macs", 1_441_792),
            Stated(VELA, f"{ASKED}.operations", 6),
            Stated(VELA, f"{ASKED}.used_bytes", kib(64.34)),
            Stated("explain MODEL op 0", "op.kernel_kinds[kind=Conv2D].kernels", 4),
        ],
    },
    "dilated_conv_bn": {
        "3cb6c060": [
            Stated(FUSION, "model.op_counts", {"CONV_2D": 2}),
            Stated(FUSION, "fusion.batch_norms", []),
            NO_CPU,
        ],
    },
    "fc_dynamic_weights": {
        "2677ad3d": [NotApplicable("CPU-only before 5.2"), NO_CPU],
    },
    "float_model": {
        "14617827": [
            Stated(FALLBACKS, "fallbacks.share", 1.0),
            Stated(FALLBACKS, "fallbacks.npu_ops", 0),
            Stated(FALLBACKS, "fallbacks.ops[*].reasons[0].text", each(says("type float32"))),
            Stated(FALLBACKS, "fallbacks.ops#", 3),
        ],
    },
    "float_io_int8": {
        "9c3ef14b": [Stated(FALLBACKS, "fallbacks.ops[*].kind", ["QUANTIZE", "DEQUANTIZE"])],
    },
    "uint8_conv": {
        "15854515": [
            NO_CPU,
            Stated(PLAN, "source_ops[kind=QUANTIZE*].placement", ["npu", "npu"]),
        ],
    },
    "dynamic_batch": {
        "58d786fc": [NO_CPU, Stated(FALLBACKS, "warnings", says("batch is dynamic: taken as 1"))],
    },
    "strided_slice_neg": {
        "e75a7b34": [
            Stated(FALLBACKS, "fallbacks.ops[*].kind", ["STRIDED_SLICE"]),
            Stated(FALLBACKS, "fallbacks.ops[0].reasons[0].value", says("-1")),
        ],
    },
    "avgpool_stride_24x5": {"ac4fd32e": [NO_CPU]},
    "back2back_acts": {
        "d16afc6b": [
            Stated(PLAN, "source_ops[placement=npu*].kind", ["LOGISTIC", "TANH", "TANH", "RELU6"]),
            Stated(PLAN, "ops#", 4),
        ],
    },
}
