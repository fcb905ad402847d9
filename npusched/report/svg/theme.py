"""Colours and type of the figures, light and dark, and figures as files of their own.

The hues are Okabe and Ito's, which people with any kind of colour vision can tell apart; dark ones
are lighter tints. Marks of one figure differ in shape, texture or place, too.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from npusched.report.svg.draw import Drawing, escape, label, rect

Theme: TypeAlias = Literal["auto", "light", "dark"]

LIGHT: Final = (
    "--bg:#f6f7f9;--card:#fff;--ink:#18212b;--soft:#55626f;--faint:#636f7a;--line:#dde2e8;"
    "--grid:#e9ecf0;--c1:#3a7fb8;--c2:#e09f1f;--c3:#b06a99;--c4:#2a9d7c;--c5:#cf5c36;--c6:#7fb8de;"
    "--c7:#8a949e;--link:#1f66a3;--good:#17735a;--bad:#b0421f;--hatch:#fff"
)
DARK: Final = (
    "--bg:#12171d;--card:#1a2129;--ink:#e7ebef;--soft:#a9b4bf;--faint:#8b97a3;--line:#303a45;"
    "--grid:#27303a;--c1:#62a6dd;--c2:#eeb548;--c3:#d093bb;--c4:#4cc3a0;--c5:#f0875f;--c6:#9ccdf0;"
    "--c7:#87939f;--link:#83bdee;--good:#5fd3b0;--bad:#f79a76;--hatch:#1a2129"
)

FONT: Final = (
    '-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans","Helvetica Neue",Arial,'
    "sans-serif"
)

FIGURE_CSS: Final = f"""
.nf{{font:11px {FONT};font-variant-numeric:tabular-nums}}
.nf text,.nf .n,.nf .d,.nf .g{{pointer-events:none}}
.nf text{{fill:var(--soft)}}.nf .t,.nf .b{{paint-order:stroke;stroke:var(--card);stroke-width:3px}}
.nf .a{{fill:var(--faint)}}.nf .b{{fill:var(--ink);font-weight:600}}
.nf .i{{fill:var(--ink)}}.nf .u{{fill:var(--card);font-weight:600}}
.nf .h{{font-size:15px;font-weight:650;fill:var(--ink)}}
.nf .g{{stroke:var(--grid);fill:none}}.nf .x{{stroke:var(--faint);fill:none}}
.nf .d{{stroke:var(--c5);stroke-width:1.5;stroke-dasharray:5 3;fill:none}}
.nf .p{{stroke:var(--c1);stroke-width:2;fill:none}}.nf .q{{stroke:var(--faint);fill:none}}
.nf .q.c1{{stroke:var(--c1)}}.nf .q.c2{{stroke:var(--c2)}}.nf .q.c3{{stroke:var(--c3)}}
.nf .q.c4{{stroke:var(--c4)}}.nf .o{{fill:none;stroke:var(--faint);stroke-dasharray:3 2}}
.nf .c1{{fill:var(--c1)}}.nf .c2{{fill:var(--c2)}}.nf .c3{{fill:var(--c3)}}.nf .c4{{fill:var(--c4)}}
.nf .c5{{fill:var(--c5)}}.nf .c6{{fill:var(--c6)}}.nf .c7{{fill:var(--c7)}}
.nf .q.c1,.nf .q.c2,.nf .q.c3,.nf .q.c4{{fill:none}}
.nf .k{{stroke:var(--card);stroke-width:.75}}.nf .f{{fill-opacity:.55}}
.nf .z{{fill:transparent}}.nf .w{{fill:var(--card);stroke:var(--line)}}
.nf .e{{fill:none;stroke:var(--faint);stroke-width:1.25}}.nf .y{{stroke:var(--ink);fill:none}}
.nf .s{{fill:url(#ns-hatch)}}.nf .sl{{stroke:var(--hatch);stroke-width:1.5}}
.nf .mm>:hover,.nf .mm>.on{{stroke:var(--ink);stroke-width:1.5}}
.nf .z.mm>:hover,.nf .z.mm>.on{{fill:var(--ink);fill-opacity:.1;stroke:none}}
"""
"""Classes of all figures; they use the colours of ``LIGHT`` or ``DARK``, whichever is set."""

HATCH: Final = (
    '<defs><pattern id="ns-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><path d="M0 0V5" class="sl"/></pattern></defs>'
)
"""The pattern of channel padding; once in a document."""

_MARGIN: Final = 20
_HEAD: Final = 50
_LINE: Final = 15


def inline(drawing: Drawing) -> str:
    """The figure as an element of a page that has ``FIGURE_CSS`` and ``HATCH``."""
    size = f'viewBox="0 0 {drawing.width} {drawing.height}" width="{drawing.width}"'
    shown = escape(drawing.summary, 600)
    return (
        f'<svg class="nf" id="f-{drawing.name}" {size} role="img" aria-label="{shown}">'
        f"{drawing.body}</svg>"
    )


def standalone(drawing: Drawing, *, theme: Theme = "auto") -> str:
    """The figure as an SVG file, with heading, legend and colours ("auto": as the viewer has)."""
    sentence = wrapped(drawing.summary, int(drawing.width / 5.4))
    head = _HEAD + _LINE * len(sentence)
    legend, bottom = _legend(drawing, head)
    width, height = drawing.width + 2 * _MARGIN, drawing.height + head + _MARGIN + bottom
    texts = [label(_MARGIN, 44 + _LINE * k, row, "t", limit=200) for k, row in enumerate(sentence)]
    heading = "".join(texts)
    style = f".nf{{{DARK if theme == 'dark' else LIGHT}}}{FIGURE_CSS}"
    if theme == "auto":
        style += f"@media(prefers-color-scheme:dark){{.nf{{{DARK}}}}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nf" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">\n'
        f"<title>{escape(drawing.title)}</title><desc>{escape(drawing.summary, 600)}</desc>\n"
        f"<style>{style.replace(chr(10), '')}.page{{fill:var(--card)}}</style>{HATCH}\n"
        f"{rect(0, 0, width, height, 'page')}\n"
        f"{label(_MARGIN, 26, drawing.title, 'h')}{heading}\n"
        f'<g transform="translate({_MARGIN} {head})">{drawing.body}</g>\n{legend}</svg>\n'
    )


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` characters, three at most."""
    from textwrap import wrap

    return wrap(text, width, max_lines=3, placeholder=" …")


def _legend(drawing: Drawing, head: int) -> tuple[str, int]:
    """Swatches below the figure, and the height that they take."""
    if not drawing.legend:
        return "", 0
    parts, x, y = [], float(_MARGIN), drawing.height + head + 8
    for classes, text in drawing.legend:
        need = 24 + 6.2 * len(text)
        if x + need > drawing.width + _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + 18
        parts.append(swatch(classes, x, y))
        parts.append(label(x + 16, y + 9.5, text))
        x += need
    return "".join(parts), y - drawing.height - head + 12


def swatch(classes: str, x: float = 0, y: float = 0) -> str:
    """A square of 11 pixels in the colour of a class; hatched ones over a plain one."""
    if classes == "s":
        return rect(x, y, 11, 11, "c1") + rect(x, y, 11, 11, "s")
    return rect(x, y, 11, 11, classes)
