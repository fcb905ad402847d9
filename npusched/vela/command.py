"""The ``vela`` command line that gives a result of the runner (Vela 5.2.0, vela.py).

Switches of the command line only: what the C++ core takes beyond them cannot be said.
"""

from __future__ import annotations

from typing import Final

from npusched.hardware import needs_vela_ini, vela_arguments, vela_ini
from npusched.hardware.target import Target
from npusched.vela.options import Allocator, Feature, StreamFormat, VelaOptions

SWITCHES: Final[dict[Feature, str]] = {
    Feature.GROUPING: "--disable-chaining",
    Feature.FWD: "--disable-fwd",
    Feature.CASCADING: "--disable-cascading",
    Feature.WEIGHT_BUFFERING: "--disable-buffering",
    Feature.REUSE_IFM: "--disable-ifm-reuse",
}
"""Features that the command line can switch off. Vela calls these switches deprecated."""

INI_SUFFIX: Final = ".vela.ini"


def ini_name(target: Target) -> str:
    """File name of the target's own vela.ini; "" if the one that Vela brings is right.

    Raises TargetError for a host-only target.
    """
    if not needs_vela_ini(target):
        return ""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in target.name)
    return f"{stem}{INI_SUFFIX}"


def ini_text(target: Target) -> str:
    """Content of the file ``ini_name``."""
    return vela_ini(target)


def vela_command(model_path: str, target: Target, options: VelaOptions) -> tuple[str, ...] | None:
    """Words of the command, to be run beside the target's vela.ini (``ini_name``) if it has one.

    ``options`` must state the arena limit. None if the command line cannot say them. Raises
    TargetError for a host-only target.
    """
    if any(feature not in SWITCHES for feature in options.disable):
        return None
    limit = options.arena_cache_size_bytes
    assert limit is not None
    name = ini_name(target)
    words = ["vela", model_path, *vela_arguments(target, f"./{name}" if name else None)]
    words += ["--optimise", options.optimise.value, "--arena-cache-size", str(limit)]
    words += [SWITCHES[feature] for feature in options.disable]
    if options.allocator is not Allocator.HILL_CLIMB:
        words += ["--tensor-allocator", options.allocator.value]
    if options.cpu_tensor_alignment_bytes != 16:
        words += ["--cpu-tensor-alignment", str(options.cpu_tensor_alignment_bytes)]
    if options.stream_format is not StreamFormat.COP1:
        words += ["--cop-format", options.stream_format.value]
    if options.separate_io_regions:
        words.append("--separate-io-regions")
    if options.softmax_int16_neg_exp_range is not None:
        words += [
            "--experimental-softmax-int16-neg-exp-range",
            str(options.softmax_int16_neg_exp_range),
        ]
    if options.ignore_ops:
        words += ["--ignore-ops", ",".join(options.ignore_ops)]
    return tuple(words)
