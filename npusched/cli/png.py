"""SVG to PNG with an installed browser, in a process of its own and without a network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from npusched.errors import NpuschedError

BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
)
VARIABLE: Final = "NPUSCHED_CHROMIUM"
LIMIT_S: Final = 120
PIXELS: Final = 2
"""Pixels of the PNG per pixel of the SVG, both ways."""

SWITCHES: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def find_browser() -> str:
    """Path of an installed Chromium or Chrome. Raises NpuschedError if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        if shutil.which(named):
            return named
        raise NpuschedError(
            "cannot draw a PNG",
            f"${VARIABLE} names '{named}', which cannot be run",
            "set it to the path of one, or unset it",
        )
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise NpuschedError(
            "cannot draw a PNG",
            "it takes an installed Chromium or Chrome, and none is on the PATH",
            f"install chromium, or set ${VARIABLE} to its path, or write an .svg",
        )
    return found


def png_of(svg: str, browser: str) -> bytes:
    """The picture of an SVG text with a width and a height. Raises NpuschedError if it fails."""
    size = re.search(r'<svg [^>]*width="(\d+)" height="(\d+)"', svg)
    if size is None:
        raise ValueError("an SVG without a size")
    with tempfile.TemporaryDirectory(prefix="npusched-") as name:
        folder = Path(name)
        source, picture = folder / "figure.svg", folder / "figure.png"
        source.write_text(svg, encoding="utf-8")
        command = [
            browser,
            *SWITCHES,
            *(["--no-sandbox"] if _is_root() else []),
            f"--user-data-dir={folder / 'profile'}",
            f"--force-device-scale-factor={PIXELS}",
            f"--window-size={size[1]},{size[2]}",
            f"--screenshot={picture}",
            source.as_uri(),
        ]
        try:
            done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            if picture.is_file():
                return picture.read_bytes()
        except (OSError, subprocess.TimeoutExpired) as error:
            said = [str(error)]
        raise NpuschedError(
            "cannot draw a PNG",
            f"{browser} made no picture" + (f": {said[0]}" if said else ""),
            "write an .svg instead",
        )


def _is_root() -> bool:
    """Whether the browser's sandbox would refuse to start."""
    return hasattr(os, "geteuid") and os.geteuid() == 0
