"""A plan as one HTML file that needs no network, and as fragments for notebooks."""

from __future__ import annotations

from npusched.report.html.page import render_html

__all__ = ["render_html"]
