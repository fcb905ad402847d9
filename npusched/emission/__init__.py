"""From a plan to a deployable ``.tflite`` for Ethos-U55 and U65.

Vela's own uncascaded compilation gives the numerics (registers of every kernel); order, rows,
addresses, copies, waits and every word of the stream are ours. Programs call ``npusched.emit``.
"""
