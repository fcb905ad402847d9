"""How each TFLite op becomes NPU kernels, as Vela 5.2 does it; ``registry`` has them all."""
