"""What a plan is made for: TOML files and any vela.ini, resolved to one ``Target``."""

from npusched.hardware.describe import TargetDescription, describe_target
from npusched.hardware.load import load_target, target_names
from npusched.hardware.target import Target
from npusched.hardware.units import parse_derate, parse_duration, parse_frequency, parse_size
from npusched.hardware.vela_write import (
    needs_vela_ini,
    vela_accelerator,
    vela_arguments,
    vela_ini,
)

__all__ = [
    "Target",
    "TargetDescription",
    "describe_target",
    "load_target",
    "needs_vela_ini",
    "parse_derate",
    "parse_duration",
    "parse_frequency",
    "parse_size",
    "target_names",
    "vela_accelerator",
    "vela_arguments",
    "vela_ini",
]
