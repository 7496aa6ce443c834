"""Shapes, and the canvas that paints them with smooth edges, for the demo scenes.

Coordinates are px, x to the right and y downwards; pixel (0, 0) covers [0, 1) x [0, 1). Angles are
radians, a positive one turns +x towards +y (clockwise on the screen).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Points = NDArray[np.float64]
Colour = tuple[int, int, int]

SUPERSAMPLING = 4
"""A pixel's coverage is counted on a grid of this many points a side."""


@dataclass(frozen=True)
class Shape:
    """A filled polygon: ``points`` (n, 2) in px, its colour, and its opacity in [0, 1]."""

    points: Points
    colour: Colour
    opacity: float = 1.0


@dataclass(frozen=True)
class Sprite:
    """A thing to be put into a scene.

    Attributes:
        class_name: The label it gets, "" for clutter that gets none.
        shapes: In the thing's own frame, painted in order: origin near its middle, +x where it
            points. The smallest rectangle around all of them is the box of the label.
        height: How far its shadow reaches, px; 0 for none.
    """

    class_name: str
    shapes: tuple[Shape, ...]
    height: float


def polygon(points: Sequence[tuple[float, float]], colour: Colour, opacity: float = 1.0) -> Shape:
    """Return the filled polygon through ``points``."""
    return Shape(np.asarray(points, dtype=np.float64), colour, opacity)


def rectangle(
    x1: float, y1: float, x2: float, y2: float, colour: Colour, opacity: float = 1.0
) -> Shape:
    """Return a level filled rectangle."""
    return polygon([(x1, y1), (x2, y1), (x2, y2), (x1, y2)], colour, opacity)


def disc(
    x: float, y: float, radius: float, colour: Colour, opacity: float = 1.0, corners: int = 32
) -> Shape:
    """Return a filled circle; with ``corners`` a multiple of 4 it spans exactly two radii."""
    angles = np.arange(corners) * (2 * math.pi / corners)
    circle = np.stack([x + radius * np.cos(angles), y + radius * np.sin(angles)], axis=1)
    return Shape(circle, colour, opacity)


def mirrored(points: Sequence[tuple[float, float]], colour: Colour) -> tuple[Shape, Shape]:
    """Return a polygon and its mirror image on the other side of the x axis."""
    return polygon(points, colour), polygon([(x, -y) for x, y in points], colour)


def move_points(points: Points, x: float, y: float, angle: float) -> Points:
    """Return points (n, 2) turned by ``angle`` about the origin, then shifted by (x, y)."""
    cos, sin = math.cos(angle), math.sin(angle)
    return points @ np.array([[cos, sin], [-sin, cos]]) + (x, y)


def move_shapes(shapes: Sequence[Shape], x: float, y: float, angle: float) -> list[Shape]:
    """Return shapes turned by ``angle`` about the origin, then shifted by (x, y)."""
    return [replace(shape, points=move_points(shape.points, x, y, angle)) for shape in shapes]


def extents(shapes: Sequence[Shape]) -> tuple[float, float, float, float]:
    """Return x1, y1, x2, y2 of the smallest level rectangle that holds all shapes."""
    points = np.concatenate([shape.points for shape in shapes])
    (x1, y1), (x2, y2) = points.min(axis=0), points.max(axis=0)
    return float(x1), float(y1), float(x2), float(y2)


def lighten(colour: Colour, factor: float) -> Colour:
    """Return ``colour`` with its brightness multiplied by ``factor``, within 0 .. 255."""
    red, green, blue = (min(255, max(0, round(channel * factor))) for channel in colour)
    return red, green, blue


def vary(rng: np.random.Generator, colour: Colour, amount: int) -> Colour:
    """Return ``colour`` made up to ``amount`` lighter or darker, each channel a little more."""
    hue = amount // 3
    shifts = rng.integers(-amount, amount + 1) + rng.integers(-hue, hue + 1, 3)
    red, green, blue = (
        min(255, max(0, channel + int(shift)))
        for channel, shift in zip(colour, shifts, strict=True)
    )
    return red, green, blue


def pick(rng: np.random.Generator, colours: Sequence[Colour]) -> Colour:
    """Return one of the colours, each equally likely."""
    return colours[int(rng.integers(len(colours)))]


class Canvas:
    """An RGB image that shapes are painted onto; what lies outside of it is cut off."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        """Start from a copy of ``pixels``, (H, W, 3)."""
        self._image = Image.fromarray(pixels)

    def pixels(self) -> NDArray[np.uint8]:
        """Return a copy of the image, (H, W, 3)."""
        return np.array(self._image)

    def paint(self, shapes: Sequence[Shape], opacity: float = 1.0) -> None:
        """Paint small shapes in order, each over those before, with exact coverage at the edges."""
        frame = self._frame(shapes)
        if frame is None:
            return
        below = self._image.crop(frame)
        size = (below.width * SUPERSAMPLING, below.height * SUPERSAMPLING)
        patch = below.resize(size, Image.Resampling.NEAREST)
        draw = ImageDraw.Draw(patch, "RGBA")
        for shape in shapes:
            draw.polygon(
                _to_patch(shape.points, frame, SUPERSAMPLING),
                fill=(*shape.colour, round(255 * shape.opacity)),
            )
        painted = patch.reduce(SUPERSAMPLING)
        if opacity < 1.0:
            painted = Image.blend(below, painted, opacity)
        self._image.paste(painted, frame[:2])

    def shade(self, shapes: Sequence[Shape], offset: tuple[float, float], strength: float) -> None:
        """Darken the ground where the shapes' common shadow falls."""
        shifted = [replace(shape, points=shape.points + offset) for shape in shapes]
        self._cover(shifted, (8, 12, 24), strength)

    def lay(
        self,
        shapes: Sequence[Shape],
        colour: Colour,
        grain: NDArray[np.float32] | None = None,
    ) -> None:
        """Cover the union of large shapes with one surface.

        Args:
            shapes: Their own colours are not used.
            colour: Of the surface.
            grain: (H, W) of the whole canvas, added to every channel.
        """
        self._cover(shapes, colour, 1.0, grain)

    def _cover(
        self,
        shapes: Sequence[Shape],
        colour: Colour,
        opacity: float,
        grain: NDArray[np.float32] | None = None,
    ) -> None:
        """Blend the union of shapes with a colour."""
        frame = self._frame(shapes)
        if frame is None:
            return
        x1, y1, x2, y2 = frame
        scale = SUPERSAMPLING // 2
        mask = Image.new("L", ((x2 - x1) * scale, (y2 - y1) * scale))
        draw = ImageDraw.Draw(mask)
        for shape in shapes:
            draw.polygon(_to_patch(shape.points, frame, scale), fill=round(255 * opacity))
        mask = mask.reduce(scale)
        if grain is None:
            self._image.paste(colour, frame, mask)
            return
        surface = np.asarray(colour, dtype=np.float32) + grain[y1:y2, x1:x2, None]
        patch = Image.fromarray(surface.clip(0, 255).astype(np.uint8))
        self._image.paste(patch, frame, mask)

    def _frame(self, shapes: Sequence[Shape]) -> tuple[int, int, int, int] | None:
        """Return the pixels x1, y1, x2, y2 that the shapes can touch, None if all are outside."""
        x1, y1, x2, y2 = extents(shapes)
        left, top = max(0, math.floor(x1) - 1), max(0, math.floor(y1) - 1)
        right = min(self._image.width, math.ceil(x2) + 1)
        bottom = min(self._image.height, math.ceil(y2) + 1)
        return (left, top, right, bottom) if left < right and top < bottom else None


def _to_patch(points: Points, frame: tuple[int, int, int, int], scale: int) -> list[float]:
    """Return x, y, x, y ... on a patch enlarged by ``scale``; Pillow counts from pixel centres."""
    moved: list[float] = ((points - frame[:2]) * scale - 0.5).ravel().tolist()
    return moved
