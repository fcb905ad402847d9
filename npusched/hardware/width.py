"""How wide Vela believes an AXI port to be, and the bandwidth that follows (VELA_SPEC §1.3)."""

from __future__ import annotations

import struct

_LEAST_BYTES_PER_CYCLE = 0.0001


def vela_axi_bytes(system_config: str) -> int:
    """Return the bytes per cycle and port that Vela's C++ core counts (Vela 5.2.0, regor.cpp).

    8 if the *name* of the system config begins with "Ethos_U55", else 16, whatever the accelerator.
    """
    return 8 if system_config.startswith("Ethos_U55") else 16


def vela_bandwidth(system_config: str, clock_scale: float, ports: int) -> float:
    """Return the bytes per NPU cycle that Vela's C++ core computes (Vela 5.2.0, regor.cpp).

    ``clock_scale`` x width x ports in float32, printed with 6 decimals, read again as float32, and
    at least 0.0001 (architecture.cpp).
    """
    product = _float32(_float32(_float32(clock_scale) * vela_axi_bytes(system_config)) * ports)
    return max(_float32(_LEAST_BYTES_PER_CYCLE), _float32(float(f"{product:.6f}")))


def _float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])
