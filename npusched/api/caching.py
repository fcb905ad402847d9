"""The cache of Vela results, for people."""

from __future__ import annotations


def cache_info() -> str:
    """One line: how many results, how many bytes, where."""
    from npusched.vela.cache import cache_info as info

    found = info()
    return f"{found.entries} Vela results, {found.size_bytes} bytes, in {found.folder}"


def cache_clear() -> str:
    """Delete all results; one line that says how many there were."""
    from npusched.vela.cache import clear_cache

    return f"{clear_cache()} Vela results deleted"
