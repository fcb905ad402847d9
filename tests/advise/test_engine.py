"""How changes are weighed: by a table of figures instead of plans."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npusched.advise import Case, Change, Confidence, Figures, Proposal, Rule, Severity
from npusched.advise.engine import effect_text, find_advice, gain_of, score, within_band
from npusched.api.advising import _case
from npusched.api.options import PlanOptions
from npusched.api.planning import make_plan
from npusched.hardware import load_target
from tests.advise import networks as nets

BEFORE = Figures(
    sram_bytes=1000,
    cycles=10_000,
    energy_nj=100.0,
    latency_s=1e-3,
    cpu_cycles=0,
    offchip_bytes=500,
    constant_bytes=800,
    cpu_ops=1,
)
replace = msgspec.structs.replace


@pytest.fixture(scope="module")
def case() -> Case:
    target = load_target("ethos-u55-128")
    options = PlanOptions(use_vela=False, candidates="none")
    made = make_plan(nets.stack(16), name="net", target=target, options=options)
    return _case(made, target, options, fits=True)


def proposal(name: str, group: str = "", **more: object) -> Proposal:
    change = Change(content=name.encode())
    return msgspec.structs.replace(
        Proposal(rule="NS999", group=group or name, what=name, change=change), **more
    )


def rule(*proposals: Proposal) -> Rule:
    return Rule(id="NS999", title="", when="", plans="", propose=lambda _: list(proposals))


class Table:
    """Figures by the name of the change; counts what is asked."""

    def __init__(self, after: Mapping[str, Figures | None]) -> None:
        self.after = after
        self.asked: list[tuple[str, bool]] = []

    def __call__(self, change: Change, quick: bool) -> Figures | None:
        name = (change.content or b"").decode()
        self.asked.append((name, quick))
        return BEFORE if not name else self.after[name]


def found(case: Case, table: Table, *proposals: Proposal) -> list[str]:
    return [each.proposal.what for each in find_advice(case, [rule(*proposals)], table)[1]]


def test_only_what_gains_enough_is_said_the_largest_gain_first(case: Case) -> None:
    table = Table(
        {
            "worse": replace(BEFORE, latency_s=1.1e-3),
            "same": BEFORE,
            "little": replace(BEFORE, latency_s=0.997e-3),
            "some": replace(BEFORE, latency_s=0.9e-3, sram_bytes=5000),
            "much": replace(BEFORE, latency_s=0.5e-3),
            "impossible": None,
            "another chip": replace(BEFORE, latency_s=0.985e-3),
        }
    )
    chip = proposal("another chip", least_gain=0.02)
    names = [proposal(name) for name in table.after if name != "another chip"]
    assert found(case, table, *names, chip) == ["much", "some"]
    warning = proposal("some", severity=Severity.WARNING)
    assert found(case, table, proposal("much"), warning) == ["some", "much"]


def test_of_alternatives_the_best_is_planned_in_full(case: Case) -> None:
    table = Table(
        {
            "good": replace(BEFORE, latency_s=0.8e-3),
            "better": replace(BEFORE, latency_s=0.7e-3),
            "bad": replace(BEFORE, latency_s=2e-3),
        }
    )
    group = [proposal(name, "place") for name in table.after]
    assert found(case, table, *group) == ["better"]
    assert [name for name, quick in table.asked if not quick] == ["", "better"]
    alone = Table({"bad": replace(BEFORE, latency_s=2e-3), "worse": None})
    assert found(case, alone, proposal("bad", "a"), proposal("worse", "a")) == []
    assert [name for name, quick in alone.asked if not quick] == [""]


@pytest.mark.parametrize(
    ("objective", "field"),
    [("sram", "sram_bytes"), ("energy", "energy_nj"), ("offchip", "offchip_bytes")],
)
def test_the_objective_decides(case: Case, objective: str, field: str) -> None:
    asked = replace(case, objective=objective)
    table = Table(
        {
            "saves it": replace(BEFORE, latency_s=2e-3, **{field: 400}),
            "saves time": replace(BEFORE, latency_s=0.1e-3),
        }
    )
    if objective == "energy":
        table.after = {**table.after, "saves it": replace(BEFORE, energy_nj=40.0)}
    assert found(asked, table, *(proposal(name) for name in table.after)) == ["saves it"]


def test_a_share_of_nothing_is_nothing(case: Case) -> None:
    assert score(case, BEFORE) == BEFORE.latency_s
    assert gain_of(case, BEFORE, BEFORE) == 0
    free = replace(BEFORE, offchip_bytes=0)
    assert gain_of(replace(case, objective="offchip"), free, free) == 0


def test_a_model_that_cannot_be_planned_has_no_advice(case: Case) -> None:
    figures, advice, tried = find_advice(case, [rule(proposal("x"))], lambda _c, _q: None)
    assert (figures, advice, tried) == (None, (), 0)


def test_messages_say_what_gets_better_and_what_gets_worse() -> None:
    after = replace(
        BEFORE, latency_s=0.9e-3, sram_bytes=1200, constant_bytes=4000, energy_nj=99.9, cpu_ops=0
    )
    assert effect_text(BEFORE, after.since(BEFORE)) == (
        "time -10.0 %, -1 op on the CPU; but SRAM +20.0 %, constants +3,200"
    )
    worse = replace(BEFORE, cycles=11_000, cpu_ops=3)
    assert effect_text(BEFORE, worse.since(BEFORE)) == (
        "no figure falls by 0.5 %; but NPU cycles +10.0 %, +2 ops on the CPU"
    )


def test_what_is_free_is_only_said_if_it_is(case: Case) -> None:
    def message(free: Figures | None) -> str:
        table = Table({"cut": replace(BEFORE, latency_s=0.5e-3), "wide": free})
        wide = ("32 would cost no more", Change(content=b"wide"))
        item = proposal("cut", free=wide, price="train it")
        return find_advice(case, [rule(item)], table)[1][0].advice.message

    assert message(BEFORE) == "cut: time -50.0 %; 32 would cost no more; train it"
    assert message(replace(BEFORE, sram_bytes=1020)) == "cut: time -50.0 %; train it"
    assert message(None) == "cut: time -50.0 %; train it"


@given(
    st.floats(-1e6, 1e6),
    st.floats(0, 1e6),
    st.sampled_from([*Confidence]),
    st.floats(-2, 2),
)
def test_the_band_is_around_the_prediction(
    predicted: float, before: float, confidence: Confidence, shift: float
) -> None:
    """A share of the change, but at least half a percent of the figure."""
    widths = {Confidence.HIGH: 0.02, Confidence.MEDIUM: 0.15, Confidence.LOW: 0.5}
    half = max(widths[confidence] * abs(predicted), 0.005 * before)
    inside = within_band(predicted, predicted + shift * half, before, confidence)
    if abs(abs(shift) - 1) > 1e-6 and half > 1e-6:
        assert inside == (abs(shift) < 1)


def test_progress_counts_up_to_its_total(case: Case) -> None:
    steps: list[tuple[int, int, str]] = []
    table = Table({name: replace(BEFORE, latency_s=0.5e-3) for name in "abc"})
    rules = [rule(proposal("a", "g"), proposal("b", "g"), proposal("c"))]
    find_advice(case, rules, table, lambda *step: steps.append(step))
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
    assert {total for _, total, _ in steps} == {4}
    assert steps[-1][0] < 4
    assert steps[-1][2] == "NS999 c"
