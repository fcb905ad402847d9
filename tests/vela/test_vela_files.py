"""Files of the vela command, of both cores, and texts that only look like them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.errors import VelaError
from npusched.hardware import load_target, vela_arguments
from npusched.vela.files import (
    VelaFileError,
    VelaOutput,
    parse_debug_database,
    parse_layers,
    parse_summary,
    read_vela_output,
)
from npusched.vela.messages import cpu_reasons
from npusched.vela.reader import read_ops, read_queue, read_sources
from npusched.vela.runner import compile_model

LAYER_HEADER = (
    "Original Operator,NNG Operator,Target,Staging Usage,Peak% (Staging),Op Cycles,"
    "Network% (cycles),NPU,SRAM AC,DRAM AC,OnFlash AC,OffFlash AC,MAC Count,Network% (MAC),"
    "Util% (MAC),Name"
)
LEGACY_HEADER = (
    "TFLite_operator,NNG Operator,SRAM Usage,Peak%,Op Cycles,Network%,NPU,SRAM AC,DRAM AC,"
    "OnFlash AC,OffFlash AC,MAC Count,Network%,Util%,Name"
)


def run_vela(corpus: Path, folder: Path, name: str, *extra: str) -> VelaOutput:
    command = (
        sys.executable,
        "-m",
        "ethosu.vela",
        str(corpus / "models" / f"{name}.tflite"),
        *vela_arguments(load_target("ethos-u55-128")),
        "--verbose-performance",
        "--enable-debug-db",
        "--output-dir",
        str(folder),
        *extra,
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_vela_output(folder)


def test_files_say_what_the_runner_says(corpus_dir: Path, tmp_path: Path) -> None:
    """The command and the worker run the same core: same file, same rows, same totals."""
    output = run_vela(corpus_dir, tmp_path, "mlpt_kws")
    content = (corpus_dir / "models" / "mlpt_kws.tflite").read_bytes()
    result = compile_model(content, load_target("ethos-u55-128"), cache=None)
    assert (output.core, output.network) == ("regor", "mlpt_kws")
    assert output.compiled == result.compiled
    summary = output.summary
    assert summary is not None
    report = result.report
    assert (summary.total_cycles, summary.npu_cycles) == (report.total_cycles, report.npu_cycles)
    assert (summary.macs, summary.accelerator) == (report.mac_count, "Ethos_U55_128")
    assert summary.encoded_weights_bytes == report.encoded_weights_bytes
    assert summary.original_weights_bytes == report.original_weights_bytes
    assert summary.arena_cache_size_bytes == result.arena_limit_bytes
    sram = summary.memories["sram"]
    assert sram.used_bytes == report.memories["Sram"].peak_bytes
    assert sram.access_cycles == report.memories["Sram"].access_cycles
    assert sram.bandwidth_bytes_per_s == 8 * 500e6  # 8 bytes per cycle at 500 MHz
    assert summary.inference_time_s == pytest.approx(report.total_cycles / 500e6)
    assert summary.ops_before_cascading == report.npu_ops + report.cpu_ops
    assert sum(layer.op_cycles for layer in output.layers) == report.total_cycles
    theirs, ours = read_ops(output.database), read_ops(result.database)
    assert len(theirs) == len(ours)
    for one, other in zip(theirs, ours, strict=True):
        assert (one.name, one.operator, one.op_cycles) == (
            other.name,
            other.operator,
            other.op_cycles,
        )
        assert (one.ifm, one.ofm, one.weights) == (other.ifm, other.ofm, other.weights)
        assert (one.block, one.traffic, one.estimates) == (
            other.block,
            other.traffic,
            other.estimates,
        )
    assert len(output.layers) == sum(1 + len(op.followers) for op in theirs)


def test_files_of_the_legacy_core(corpus_dir: Path, tmp_path: Path) -> None:
    output = run_vela(corpus_dir, tmp_path, "mlpt_kws", "--debug-force-legacy-core")
    assert output.core == "legacy"
    assert output.summary is not None
    assert sum(layer.op_cycles for layer in output.layers) == output.summary.total_cycles
    assert {layer.placement for layer in output.layers} == {"NPU"}
    assert output.layers[0].source_operator == "CONV_2D"
    assert output.layers[0].staging_usage_bytes > 0
    assert read_ops(output.database) == ()
    assert [source.ref for source in read_sources(output.database)][:2] == [(0, 0), (0, 1)]
    assert read_queue(output.database)[0].offset_bytes > 0


def test_names_with_commas_quotes_and_line_ends() -> None:
    first = "Conv2D,Conv2D,NPU,16,50.0,7,70.0,5,3,0,0,2,10,1.0,2.0,"
    text = f'{LAYER_HEADER}\n{first}a,b "c"\n{first}two\nlines, x\nCast,Passthrough,CPU,0,0.0,' + (
        "0,0.0,0,0,0,0,0,0,0.0,100,z\n"
    )
    layers = parse_layers(text)
    assert [layer.name for layer in layers] == ['a,b "c"', "two\nlines, x", "z"]
    assert [layer.placement for layer in layers] == ["NPU", "NPU", "CPU"]
    assert layers[0].memory_cycles == {
        "sram": 3,
        "dram": 0,
        "on_chip_flash": 0,
        "off_chip_flash": 2,
    }
    assert (layers[0].mac_count, layers[0].npu_cycles, layers[0].op_cycles) == (10, 5, 7)


def test_legacy_layers_repeat_their_header_and_quote() -> None:
    row = (
        'CONV_2D,Conv2DBias,12928,58.5,21994.5,25.9,21994.5,3560.0,0.0,0.0,0.0,480000,16.9,17,"a,b"'
    )
    layers = parse_layers(f"{LEGACY_HEADER}\n{row}\n{LEGACY_HEADER}\n{row}\n")
    assert [layer.name for layer in layers] == ["a,b", "a,b"]
    assert layers[0].op_cycles == 21994.5
    assert layers[0].staging_usage_bytes == 12928


def test_database_cells_are_not_escaped() -> None:
    """The C++ core puts names between quotes as they are."""
    text = (
        "<?xml version='1.0' encoding='UTF-8'?>\n<debug source=\"x\">\n"
        '<table name="perf">\n<![CDATA[\n"id","name","op_cycles"\n'
        '1,"a,"b",c",7\n2,"",8\n3,"d\ne]]>",0x10\n]]>\n</table>\n'
        '<table name="empty">\n<![CDATA[\n"id"\n]]>\n</table>\n</debug>\n'
    )
    database = parse_debug_database(text)
    table = database.table("perf")
    assert table.column("name") == ('a,"b",c', "", "d\ne]]>")
    assert table.ints("op_cycles") == (7, 8, 16)
    assert table.ints("absent") == (0, 0, 0)
    assert len(database.table("empty")) == 0


@pytest.mark.parametrize(
    ("parse", "text", "part"),
    [
        (parse_summary, "", "cycles_total"),
        (parse_summary, "experiment,cycles_total\n", "cycles_total"),
        (parse_summary, "network,cycles_total\nx,many\n", "'many', not a number"),
        (parse_layers, "a,b\n1,2\n", "NNG Operator"),
        (parse_layers, f"{LAYER_HEADER}\nConv2D,1\n", "a row has 2 cells, the header 16"),
        (parse_debug_database, "hello", "no <debug> element"),
        (parse_debug_database, '<debug><table name="perf"><![CDATA["id"\n1\n', "has no end"),
        (
            parse_debug_database,
            '<debug><table name="q"><![CDATA["a","b"\n1,2,3\n]]></table>',
            "a row has 3 cells, not 2",
        ),
        (
            parse_debug_database,
            '<debug><table name="q"><![CDATA["a","b"\n1\n]]></table>',
            "a row is cut off",
        ),
    ],
)
def test_what_is_no_such_file_says_so(parse: object, text: str, part: str) -> None:
    assert callable(parse)
    with pytest.raises(VelaFileError) as caught:
        parse(text)
    assert part in caught.value.why
    assert caught.value.exit_code == 2


@given(
    st.text(max_size=200), st.sampled_from([LAYER_HEADER, LEGACY_HEADER, "network,cycles_total"])
)
def test_random_text_is_a_value_or_an_error(text: str, header: str) -> None:
    for parse in (parse_summary, parse_layers):
        try:
            parse(f"{header}\n{text}")
        except VelaError:
            continue


@given(st.text(alphabet='"perf_id,name\n0x1-]>a', max_size=120))
def test_random_tables_are_read_or_refused(body: str) -> None:
    text = f'<debug><table name="perf"><![CDATA[{body}]]></table></debug>'
    try:
        database = parse_debug_database(text)
        read_ops(database)
        list(database.table("perf").rows())
    except VelaError:
        return


def test_folder_without_output(tmp_path: Path) -> None:
    with pytest.raises(VelaFileError) as caught:
        read_vela_output(tmp_path)
    assert "no Vela output" in caught.value.what
    with pytest.raises(VelaFileError):
        read_vela_output(tmp_path / "absent")


def test_folder_with_two_networks_needs_a_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}_per-layer.csv").write_text(LAYER_HEADER + "\n")
    with pytest.raises(VelaFileError) as caught:
        read_vela_output(tmp_path)
    assert caught.value.values["found"] == ("one", "two")
    assert read_vela_output(tmp_path, "two").network == "two"


def test_printed_refusals_are_values(corpus_dir: Path) -> None:
    content = (corpus_dir / "cases" / "float_io_int8.tflite").read_bytes()
    result = compile_model(content, load_target("ethos-u55-128"), cache=None)
    reasons = cpu_reasons(result)
    assert [reason.operator for reason in reasons] == ["DEQUANTIZE", "QUANTIZE"]
    assert reasons[0].reason == "Unsupported opType"
    assert "Float32" in reasons[1].reason
    assert "INT8" in reasons[1].constraint
