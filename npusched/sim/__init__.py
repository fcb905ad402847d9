"""Executes Ethos-U55/U65 command streams bit-exactly, checks hazards, counts bytes, proves results.

Facts from SIM.md, VELA_SPEC §6 and Vela 5.2.0 (ethos_u65_interface.hpp). Nothing here was checked
on silicon: a belief that Vela itself holds about the hardware is shared.
"""
