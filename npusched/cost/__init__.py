"""Pure cost functions: block configs, NPU cycles, bytes, weights, energy, CPU cycles."""
