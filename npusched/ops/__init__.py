"""The op catalogue: what each TFLite op is, costs on a host, and where it can run."""

from npusched.ops.catalogue import SPECS, Category, CostClass, OpSpec, spec
from npusched.ops.constraint import RULES_VERSION, Constraint, Reason
from npusched.ops.macs import HostWork, host_work, source_macs
from npusched.ops.operands import Operand, Operands, operands_of
from npusched.ops.place import (
    DilatedConvolution,
    dilated_convolutions,
    place,
    placement,
    unreachable_ops,
)
from npusched.ops.refusals import refused
from npusched.ops.roles import Role, input_role
from npusched.ops.window import Window, ifm_rows

__all__ = [
    "RULES_VERSION",
    "SPECS",
    "Category",
    "Constraint",
    "CostClass",
    "DilatedConvolution",
    "HostWork",
    "OpSpec",
    "Operand",
    "Operands",
    "Reason",
    "Role",
    "Window",
    "dilated_convolutions",
    "host_work",
    "ifm_rows",
    "input_role",
    "operands_of",
    "place",
    "placement",
    "refused",
    "source_macs",
    "spec",
    "unreachable_ops",
]
