"""What Vela is asked to do: accelerator, configuration text and compiler options.

The two texts that the C++ core takes are assembled here, as the ``vela`` command assembles them
(VELA_SPEC §6 "pybind"; Vela 5.2.0, vela.py). Nothing here imports Vela.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Optimise(StrEnum):
    """Vela's ``--optimise`` strategy."""

    PERFORMANCE = "Performance"
    SIZE = "Size"


class Feature(StrEnum):
    """A scheduler feature that can be switched off (Vela 5.2.0, scheduler.hpp).

    FMStaging and Sparsity have no switch on the command line.
    """

    WEIGHT_BUFFERING = "WeightBuffering"
    CASCADING = "Cascading"
    GROUPING = "Grouping"
    FWD = "FWD"
    SPARSITY = "Sparsity"
    FM_STAGING = "FMStaging"
    REUSE_IFM = "ReuseIFM"


class Allocator(StrEnum):
    """Address allocators of the C++ core (``--tensor-allocator``)."""

    HILL_CLIMB = "HillClimb"
    LINEAR = "LinearAlloc"


class OutputFormat(StrEnum):
    """Container of the result: a .tflite file with ethos-u operators, or its parts."""

    TFLITE = "TFLite"
    RAW = "Raw"


class StreamFormat(StrEnum):
    """Driver payload format of the command stream (``--cop-format``)."""

    COP1 = "COP1"
    COP2 = "COP2"


class VelaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Compiler options. ``arena_cache_size_bytes`` None = as the target says (see ``runner``).

    ``disable`` is a set: its order and repetitions do not matter (``canonical``).
    """

    optimise: Optimise = Optimise.PERFORMANCE
    arena_cache_size_bytes: int | None = None
    disable: tuple[Feature, ...] = ()
    allocator: Allocator = Allocator.HILL_CLIMB
    cpu_tensor_alignment_bytes: int = 16
    separate_io_regions: bool = False
    softmax_int16_neg_exp_range: float | None = None
    ignore_ops: tuple[str, ...] = ()
    debug_database: bool = True
    output_format: OutputFormat = OutputFormat.TFLITE
    stream_format: StreamFormat = StreamFormat.COP1

    def canonical(self) -> VelaOptions:
        """Return the same options with sets sorted, so that equal requests compare equal."""
        return msgspec.structs.replace(
            self,
            disable=tuple(sorted(set(self.disable))),
            ignore_ops=tuple(sorted({name.upper() for name in self.ignore_ops})),
        )


class VelaConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hardware as Vela's C++ core is told.

    ``architecture`` is the core's name (EthosU55, EthosU65, EthosU85), ``macs`` those of one core
    (VELA_SPEC §6), ``ini`` the text of a vela.ini, the others names of sections in it.
    """

    architecture: str
    macs: int
    cores: int
    ini: str
    system_config: str
    memory_mode: str


def address_space_bytes(architecture: str) -> int:
    """Return the default arena limit: the whole address space (Vela 5.2.0, architecture_features).

    4 GiB for U55, 1 TiB for U65 and U85.
    """
    return 1 << (32 if architecture == "EthosU55" else 40)


def system_text(config: VelaConfig) -> str:
    """Return the system configuration text for the C++ core, without comments and blank lines."""
    lines = (line.strip() for line in config.ini.splitlines())
    ini = "\n".join(line for line in lines if line and line[0] not in ";#")
    return (
        f"[architecture]\nmacs={config.macs}\ncores={config.cores}\n"
        f"[vela]\nsystem_config_name={config.system_config}\n"
        f"memory_mode_name={config.memory_mode}\n{ini}\n"
    )


def compiler_text(options: VelaOptions, arena_limit_bytes: int) -> str:
    """Return the options text for the C++ core; every option that matters is always written."""
    lines = [
        "[compiler]",
        f"enable_db={_flag(options.debug_database)}",
        f"output_format={options.output_format}",
        f"cop_format={options.stream_format}",
        "[scheduler]",
        f"optimize={options.optimise}",
        f"arena_size_limit={arena_limit_bytes}",
        f"separate_io_regions={_flag(options.separate_io_regions)}",
        f"cpu_tensor_alignment={options.cpu_tensor_alignment_bytes}",
        f"tensor_allocator={options.allocator}",
    ]
    if options.disable:
        lines.append(f"disable_feature={'|'.join(options.disable)}")
    lines.append("[graph]")
    if options.softmax_int16_neg_exp_range is not None:
        lines.append(f"softmax_int16_neg_exp_range={options.softmax_int16_neg_exp_range}")
    if options.ignore_ops:
        lines.append(f"ignore_ops={','.join(options.ignore_ops)}")
    return "\n".join(lines) + "\n"


def _flag(value: bool) -> str:
    return "true" if value else "false"
