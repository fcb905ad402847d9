"""Triggers of the errors of targets, their files and the units of their options."""

from __future__ import annotations

from npusched.hardware import load_target, parse_derate, parse_energy, parse_percent, store
from npusched.hardware.names import resolve_name
from npusched.hardware.vela_write import vela_ini
from tests.errors.place import CHAIN, PLAIN, Place, Table, Trigger, cli
from tests.hardware.test_schema import BOARD
from tests.hardware.test_vela_ini_read import MODES, SYSTEM


def _with(*options: str) -> Trigger:
    return cli("plan", CHAIN, *PLAIN, *options)


def _board(old: str, new: str, text: str = BOARD) -> Trigger:
    """Plan for a board whose file has one text replaced."""

    def run(place: Place) -> None:
        assert old in text
        file = place.file("board.toml", text.replace(old, new))
        place.cli("plan", CHAIN, "--no-vela", "-c", file)

    return run


def _file(name: str, old: str, new: str) -> Trigger:
    return _board(old, new, (store.config_folder() / f"{name}.toml").read_text())


def _ini(text: str) -> Trigger:
    return lambda place: place.cli(
        "plan", CHAIN, *PLAIN, "--vela-config", place.file("a\x1b.ini", text)
    )


def _no_folder(place: Place) -> None:
    place.patch.setattr(store, "__file__", str(place.folder / "hardware" / "store.py"))
    store.config_folder()


_HOST = BOARD[BOARD.index("[host]") : BOARD.index("[system_configs.RA8P1]")]

HARDWARE: Table = {
    "hardware.choose:_only": _ini(SYSTEM + SYSTEM.replace("Board", "Second") + MODES),
    "hardware.choose:_refuse_other_family": _with("--system-config", "Ethos_U65_High_End"),
    "hardware.choose:_illegal_mode": _with("--memory-mode", "Dedicated_Sram"),
    "hardware.load:load_target": lambda place: place.cli(
        "plan",
        CHAIN,
        "-c",
        "cortex-m55",
        "--no-vela",
        "--vela-config",
        place.file("a.ini", SYSTEM),
    ),
    "hardware.load:_clock": lambda _: load_target("ethos-u55-128", clock_hz=float("inf")),
    "hardware.load:_memory_of": _board('const = "mram"', 'const = "axi1"'),
    "hardware.load:_check_vela_names": _board('vela_name = "OffChipFlash"', 'vela_name = "Sram"'),
    "hardware.names:unknown_name": cli("plan", CHAIN, "-c", "ethos-u55\n-12"),
    "hardware.names:resolve_name": lambda _: resolve_name(
        "system config", "High", ("Ethos_U55_High_A", "Ethos_U55_High_B"), "a.ini"
    ),
    "hardware.store:config_folder": _no_folder,
    "hardware.store:accelerator_of": _board('"ethos-u55-256"', '"cortex-m4"'),
    "hardware.store:host_of": _board(_HOST, ""),
    "hardware.store:host_of#2": _board('cpu = "cortex-m85"', 'cpu = "ethos-u55-64"'),
    "hardware.store:read_toml": cli("plan", CHAIN, "-c", "absent\x1b.toml"),
    "hardware.store:read_toml#2": lambda place: place.cli(
        "plan", CHAIN, "-c", place.file("board.toml", b"\xff\x00")
    ),
    "hardware.store:read_toml#3": _board("[host]", "[host"),
    "hardware.store:_not_as_expected": _board("memory_mode =", "memory_mod ="),
    "hardware.store:_checked": _file("ethos-u55-64", '"ethos-u55"', '"ethos-u85"'),
    "hardware.store:_check_classes": _file("cortex-m4", "resize = ", "resizing = "),
    "hardware.units:parse_size": _with("--sram", "0.3"),
    "hardware.units:parse_size#2": _with("--sram", "0"),
    "hardware.units:parse_frequency": _with("--clock", "0MHz"),
    "hardware.units:parse_percent": lambda _: parse_percent("1e9%"),
    "hardware.units:_positive": lambda _: parse_energy("0uJ"),
    "hardware.units:parse_derate": _with("--derate", "sr\nam"),
    "hardware.units:parse_derate#2": lambda _: parse_derate("sram=0.5,sram=0.6"),
    "hardware.units:check_factor": _with("--derate", "sram=2"),
    "hardware.units:_factor": _with("--derate", "sram=half\x1b"),
    "hardware.units:_quantity": _with("--sram", "mu\nch"),
    "hardware.units:_quantity#2": _with("--sram", "5 apples"),
    "hardware.vela_read:_bad": _ini(""),
    "hardware.vela_read:_bad_key": _ini(SYSTEM.replace("axi0_port=", "axi0_prt=") + MODES),
    "hardware.vela_write:no_npu": lambda _: vela_ini(load_target("cortex-m55")),
}
