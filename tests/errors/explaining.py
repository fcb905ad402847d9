"""Triggers of the errors of ``npusched explain``."""

from __future__ import annotations

from tests.errors.place import CHAIN, PLAIN, Table, cli

EXPLAINING: Table = {
    "api.explaining:_about_vela": cli("explain", CHAIN, "vela", "-c", "cortex-m55"),
    "api.explaining:op_index": cli("explain", CHAIN, "op", "99", *PLAIN),
    "api.explaining:op_index#2": cli("explain", CHAIN, "layer", "conv", *PLAIN),
    "api.explaining:op_index#3": cli("explain", CHAIN, "layer", "no\nthing", *PLAIN),
    "cli.explain:explain": cli("explain", CHAIN, "peak", *PLAIN, "--arena-cache-size", "4KiB"),
    "cli.explain:_named": cli("explain", CHAIN, "peak", "3", *PLAIN),
    "cli.explain:_named#2": cli("explain", CHAIN, "op", *PLAIN),
    "cli.explain:_named#3": cli("explain", CHAIN, "op", "fir\nst", *PLAIN),
}
