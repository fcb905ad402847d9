"""Vela as referee: run it in a process of its own, read all that it says, match it op by op.

The package itself imports nothing, because Vela's worker process starts through it.
"""
