"""How each TFLite op that is not a plain kernel becomes NPU kernels, as Vela 5.2 does it."""
