"""The cache of Vela results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npusched.vela.cache import CacheInfo


def cache_info() -> CacheInfo:
    """Where the cache is, how many results it holds, their size and the bound on it."""
    from npusched.vela.cache import cache_info as info

    return info()


def cache_clear() -> int:
    """Delete all results; return how many there were."""
    from npusched.vela.cache import clear_cache

    return clear_cache()
