"""How figures look: two colour themes, text sizes, and names that fit."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DPI = 150
"""Of figures saved as pixels."""

_TICK_SIZE = 8
_GRID_WIDTH = 0.8


@dataclass(frozen=True)
class Theme:
    """Colours of a figure.

    ``palette`` is told apart with any kind of colour vision: hues and lightness of Okabe and Ito
    (https://jfly.uni-koeln.de/color), made lighter or darker where the background asks for it.
    """

    background: str
    text: str
    muted: str
    grid: str
    palette: tuple[str, ...]


LIGHT = Theme(
    background="#ffffff",
    text="#1c2733",
    muted="#5f6c79",
    grid="#e3e8ed",
    palette=(
        "#0072b2",
        "#d55e00",
        "#009e73",
        "#cc79a7",
        "#e69f00",
        "#56b4e9",
        "#5b4a9c",
        "#8c6d31",
    ),
)
DARK = Theme(
    background="#182029",
    text="#e8edf2",
    muted="#8c99a6",
    grid="#2c3743",
    palette=(
        "#56b4e9",
        "#ff8a4c",
        "#2fc79a",
        "#e59cc4",
        "#f0c24b",
        "#a8d8f5",
        "#a99bea",
        "#c9ae78",
    ),
)


def recolour(svg: str) -> str:
    """Return a drawing in the colours of ``LIGHT`` in those of ``DARK``.

    Drawing a figure takes some tenths of a second, replacing its colours next to nothing.
    """
    dark = dict(zip(_colours(LIGHT), _colours(DARK), strict=True))
    return re.sub("|".join(dark), lambda found: dark[found[0]], svg)


def _colours(theme: Theme) -> tuple[str, ...]:
    return (theme.background, theme.text, theme.muted, theme.grid, *theme.palette)


@contextmanager
def draw_figure(width: float, height: float) -> Iterator[Figure]:
    """Yield an empty figure, ``width`` x ``height`` inches, to be drawn on in the light theme.

    It belongs to no window, and matplotlib's own settings come back after the ``with`` block.
    """
    with mpl.rc_context(_settings()):  # type: ignore[arg-type]  # literal keys
        figure = Figure(
            figsize=(width, height), dpi=DPI, facecolor=LIGHT.background, layout="constrained"
        )
        yield figure
    for axes in figure.axes:  # ticks are made when they are shown, outside of the block
        axes.tick_params(
            which="both",
            color=LIGHT.muted,
            labelcolor=LIGHT.text,
            labelsize=_TICK_SIZE,
            grid_color=LIGHT.grid,
            grid_linewidth=_GRID_WIDTH,
        )


def _settings() -> dict[str, Any]:
    """Return matplotlib's settings for our figures."""
    return {
        "axes.edgecolor": LIGHT.muted,
        "axes.facecolor": LIGHT.background,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.labelcolor": LIGHT.text,
        "axes.labelsize": 9,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": LIGHT.text,
        "axes.titlelocation": "left",
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "grid.color": LIGHT.grid,
        "legend.fontsize": _TICK_SIZE,
        "legend.frameon": False,
        "legend.labelcolor": LIGHT.text,
        "lines.linewidth": 1.8,
        "lines.markersize": 4,
        "text.color": LIGHT.text,
    }


def say(axes: Axes, message: str) -> None:
    """Write ``message`` where there is nothing to draw."""
    axes.set_axis_off()
    axes.text(
        0.5,
        0.5,
        plain_text(message),
        ha="center",
        va="center",
        wrap=True,
        color=LIGHT.muted,
        fontsize=9,
        transform=axes.transAxes,
    )


def plain_text(text: str) -> str:
    """Return ``text`` so that matplotlib shows it as it is: no formulas, no hidden labels."""
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def short_names(names: Sequence[str], limit: int = 26) -> list[str]:
    """Return names with at most ``limit`` characters: the middle of a longer one is left out."""
    head = (limit - 1) * 2 // 3
    tail = limit - 1 - head
    return [
        plain_text(name if len(name) <= limit else f"{name[:head]}…{name[-tail:]}")
        for name in names
    ]
