"""Reference arithmetic of the scheduled ops: pure functions on arrays of shape (n, h, w, c).

Inputs are stored integers of any width; results are exact integers (int64, or int32 where that is
provably wide enough) until ``store`` brings them to the OFM's type. Semantics: SIM.md §3. All
parameters (zero points, multipliers, shifts, rounding, clamps, tables) are explicit, so that the
command-stream simulator, the graph interpreter and the plan executor (which runs rows of an op at
a time: give it the rows it reads and the padding that is left) share these functions.
"""

from npusched.sim.kernels.arithmetic import Arithmetic, Table, Window, finish, run
from npusched.sim.kernels.elementwise import Binary, Operands, Unary, binary, scale_operands, unary
from npusched.sim.kernels.epilogue import Clamp, clamp, lookup8, lookup16, store
from npusched.sim.kernels.geometry import centre, extent, pad, prepare, upscale
from npusched.sim.kernels.linear import PreparedConv, PreparedDepthwise, conv, depthwise
from npusched.sim.kernels.pool import average_pool, max_pool, reduce_sum, window_sum
from npusched.sim.kernels.rescale import Scaling, rescale

__all__ = [
    "Arithmetic",
    "Binary",
    "Clamp",
    "Operands",
    "PreparedConv",
    "PreparedDepthwise",
    "Scaling",
    "Table",
    "Unary",
    "Window",
    "average_pool",
    "binary",
    "centre",
    "clamp",
    "conv",
    "depthwise",
    "extent",
    "finish",
    "lookup8",
    "lookup16",
    "max_pool",
    "pad",
    "prepare",
    "reduce_sum",
    "rescale",
    "run",
    "scale_operands",
    "store",
    "unary",
    "upscale",
    "window_sum",
]
