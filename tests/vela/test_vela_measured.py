"""Files of measurements: what is understood, what is kept, what is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.vela.measured import MeasuredError, parse_measurements, read_measurements


def test_csv_with_network_and_ops() -> None:
    """An empty index is the network; ms become s; other numbers are counters, texts are not."""
    text = "Index,NPU Active,latency_ms,AXI0_RD,board\n,1000,2.5,7,a\n3,400,,,\n"
    network, op = parse_measurements(text, subgraph=1)
    assert network.source_op is None
    assert network.cycles == 1000
    assert network.latency_s == pytest.approx(0.0025)
    assert network.counters == {"AXI0_RD": 7}
    assert op.source_op == (1, 3)
    assert op.cycles == 400
    assert op.latency_s is None


@pytest.mark.parametrize(
    "text",
    [
        '{"network": {"cycles": 9}, "ops": [{"op": 0, "cycles": 4}]}',
        '[{"cycles": 9}, {"index": 0, "cycles": 4}]',
    ],
)
def test_json_forms(text: str) -> None:
    network, op = parse_measurements(text)
    assert (network.source_op, network.cycles) == (None, 9)
    assert (op.source_op, op.cycles) == ((0, 0), 4)


def test_one_object_is_the_network() -> None:
    (entry,) = parse_measurements('{"latency_us": 440, "subgraph": 0}')
    assert entry.source_op is None
    assert entry.latency_s == pytest.approx(440e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no row"),
        ("index,cycles\n", "no row"),
        ("index,cycles\n1,fast\n", "not a figure"),
        ("index,cycles\n1,-4\n", "not a figure"),
        ("index,cycles\n1,nan\n", "not a figure"),
        ("index,cycles\n1.5,4\n", "not a whole number"),
        ("index,power\n1,4\n", "no entry has cycles"),
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"ops": 3}', "not an object"),
        ('{"cycles": true}', "not a figure"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(MeasuredError) as caught:
        parse_measurements(text)
    assert said in caught.value.why
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MeasuredError):
        read_measurements(tmp_path / "none.csv")
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"\xff\xfe\x00cycles")
    with pytest.raises(MeasuredError):
        read_measurements(path)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(MeasuredError):
        assert parse_measurements(text)
