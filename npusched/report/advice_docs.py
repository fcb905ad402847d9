"""What every field of advice means (as ``field_docs`` for plans)."""

from __future__ import annotations

from typing import Final

ADVICE_DOCS: Final[dict[str, dict[str, str]]] = {
    "AdviceReport": {
        "schema_version": "Version of this form; a new major number changes or removes a field.",
        "npusched_version": "Version of npusched.",
        "vela_version": "Version of the Vela that encoded the weights; null if none was asked.",
        "model": "Name of the model's file, or demo:NAME.",
        "sha256": "Hash of the model's file.",
        "target": "Name of the target.",
        "clock_hz": "NPU clock.",
        "system_config": "Its system config.",
        "memory_mode": "Its memory mode.",
        "objective": "What advice is about: cycles, energy, offchip or sram.",
        "budget_memory": "Name of the memory that the budget limits.",
        "budget_bytes": "The budget; null if none is known.",
        "fits": "False if no plan keeps the budget: advice is about SRAM then.",
        "before": "The plan as it is (if none fits: the smallest one).",
        "advice": "What is worth changing: warnings first, then the largest gain.",
        "planned_changes": "How many changes were planned.",
        "rules": "Ids of the rules that were asked.",
        "warnings": "What the user must know, one sentence each.",
    },
    "AdviceFigures": {
        "sram_bytes": "Peak of the budget memory.",
        "cycles": "NPU cycles, memory stalls included.",
        "energy_nj": "Typical energy of one inference.",
        "latency_s": "Time of one inference: NPU, CPU, calls and hand-offs.",
        "cpu_cycles": "Cycles of ops on the CPU, at its clock.",
        "offchip_bytes": "Bytes moved from and to memories off the chip.",
        "constant_bytes": "Weights and tables as stored.",
        "cpu_ops": "Ops of the file that the CPU runs.",
    },
}
