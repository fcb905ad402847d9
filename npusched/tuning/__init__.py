"""Budgets: which limits to try with Vela, and what a curve of SRAM against time says.

Not called ``tune``: that is the function of ``npusched``.
"""
