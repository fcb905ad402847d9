"""The example of docs/adding-a-board.md is a board."""

from __future__ import annotations

import re
from pathlib import Path

from npusched.hardware import load_target, vela_ini

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-board.md"


def test_the_example_is_a_board(tmp_path: Path) -> None:
    """0.5 x 8 = 4 bytes per cycle of SRAM, 0.125 x 8 = 1 of flash."""
    found = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) < 60
    path = tmp_path / "my-board.toml"
    path.write_text(found[1])
    target = load_target(str(path))
    assert target.name == "my-board"
    assert [m.bandwidth_bytes_per_cycle for m in target.memories] == [4, 1]
    assert target.sram_budget_bytes == 2 << 20
    assert "[System_Config.My_Board]" in vela_ini(target)


def test_the_override_of_the_page_is_valid(tmp_path: Path) -> None:
    text = PAGE.read_text()
    board = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    line = re.search(r"memory_read\.mram = .*?\}", text)
    assert board is not None
    assert line is not None
    path = tmp_path / "b.toml"
    path.write_text(f"{board[1]}\n[energy_override]\n{line[0].replace('mram', 'flash')}\n")
    assert load_target(str(path)).energy.memory_read["flash"].typical == 9
