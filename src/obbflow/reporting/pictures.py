"""Figures and tiles as data URIs: what lets one HTML file hold them all."""

import base64
import io
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from obbflow.reporting.style import recolour

_JPEG_QUALITY = 88


@dataclass(frozen=True)
class Picture:
    """A figure for light and for dark pages, with the text for those who cannot see it."""

    light: str
    dark: str
    alt: str
    caption: str


def picture(figure: Figure, alt: str, caption: str = "") -> Picture:
    """Return a figure for light and for dark pages; the same figure gives the same bytes.

    Args:
        figure: Drawn in the colours of ``style.LIGHT``.
        alt: What the figure shows, in words.
        caption: Shown below it.
    """
    svg = _svg(figure)
    light, dark = (_data_uri("image/svg+xml", text.encode()) for text in (svg, recolour(svg)))
    return Picture(light, dark, alt, caption)


def _svg(figure: Figure) -> str:
    """Return a figure as SVG, without the prolog, which names a DTD on the web."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "obbflow"}):  # else ids are random
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def jpeg_uri(image: Image.Image) -> str:
    """Return an image as a data URI."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=_JPEG_QUALITY, subsampling=0, optimize=True)
    return _data_uri("image/jpeg", stream.getvalue())


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
