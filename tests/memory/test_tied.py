"""Addresses of ranges that keep fixed distances."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from npusched.memory import LiveRange, Tied, allocate, allocate_tied, check_allocation


def _range(key: str, size: int, first: int, end: int) -> LiveRange:
    return LiveRange(key=key, size_bytes=size, first_step=first, end_step=end)


ROWS = st.lists(
    st.tuples(st.integers(1, 200), st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=10
)


@st.composite
def tied_ranges(draw: st.DrawFn) -> tuple[list[LiveRange], list[Tied]]:
    """Ranges, neighbours of which are tied at random."""
    rows = draw(ROWS)
    ranges = [_range(f"t{i}", s, f, f + d) for i, (s, f, d) in enumerate(rows)]
    groups: list[list[tuple[int, int]]] = []
    for k in range(len(ranges)):
        is_tied: bool = draw(st.booleans())
        if groups and is_tied:
            groups[-1].append((k, 16 * draw(st.integers(0, 6))))
        else:
            groups.append([(k, 0)])
    return ranges, [Tied(members=tuple(group)) for group in groups]


@given(tied_ranges())
def test_distances_are_kept_and_nothing_else_overlaps(
    drawn: tuple[list[LiveRange], list[Tied]],
) -> None:
    ranges, groups = drawn
    placed = allocate_tied(ranges, groups)
    sharing = {
        (a, b) for group in groups for a, _ in group.members for b, _ in group.members if a < b
    }
    faults = check_allocation(
        ranges, placed.offsets, limit_bytes=placed.peak_bytes, sharing=sharing
    )
    assert faults == []
    assert placed.bound_bytes <= placed.peak_bytes
    for group in groups:
        (first, d0), *rest = group.members
        for k, d in rest:
            assert placed.offsets[k] - placed.offsets[first] == d - d0


@given(ROWS)
def test_without_ties_it_is_plain_allocation(rows: list[tuple[int, int, int]]) -> None:
    ranges = [_range(f"t{i}", s, f, f + d) for i, (s, f, d) in enumerate(rows)]
    groups = [Tied(members=((k, 0),)) for k in range(len(ranges))]
    assert allocate_tied(ranges, groups) == allocate(ranges)


def test_what_is_not_declared_may_not_share() -> None:
    ranges = [_range("x", 64, 0, 3), _range("y", 64, 2, 4)]
    assert check_allocation(ranges, [16, 0], sharing={(0, 1)}) == []
    assert len(check_allocation(ranges, [16, 0])) == 1
    placed = allocate_tied(ranges, [Tied(members=((0, 16), (1, 0)))])
    assert (placed.offsets, placed.peak_bytes, placed.bound_bytes) == ((16, 0), 80, 80)
