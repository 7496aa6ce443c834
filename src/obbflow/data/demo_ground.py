"""The ground below a demo scene (fields, water) and the camera above it (light, blur, noise)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Field = NDArray[np.float32]
"""(H, W): one number a pixel."""

FIELD_COLOURS = np.array(
    [
        (104, 122, 70), (128, 136, 82), (150, 142, 96), (170, 154, 108), (128, 104, 78),
        (112, 92, 72), (88, 110, 62), (142, 130, 102), (184, 170, 124), (98, 116, 84),
    ],
    dtype=np.float32,
)  # fmt: skip
WILD_COLOURS = np.array([(92, 106, 62), (140, 128, 94)], dtype=np.float32)
DEEP, SHALLOW, SAND = (
    np.array(colour, dtype=np.float32)
    for colour in ((38, 66, 84), (62, 98, 104), (188, 174, 138))
)


@dataclass(frozen=True)
class Water:
    """A sea or river.

    Attributes:
        depth: (H, W), px from the shore, positive in the water.
        angle: Direction from the shore into the sea, or downstream.
        is_river: A band across the scene; otherwise a sea along one side.
    """

    depth: Field
    angle: float
    is_river: bool


def value_noise(
    rng: np.random.Generator, height: int, width: int, cell: float, octaves: int
) -> Field:
    """Return smooth noise of mean 0 and standard deviation 1.

    Args:
        rng: Source of the random numbers.
        height: H, px.
        width: W, px.
        cell: Size of the coarsest blobs, px; each octave halves size and height.
        octaves: How many sizes are added.

    Returns:
        (H, W) float32.

    Source:
        Value noise summed over octaves, after K. Perlin, "An image synthesizer", SIGGRAPH 1985.
    """
    total = np.zeros((height, width), dtype=np.float32)
    for octave in range(octaves):
        size = cell / 2**octave
        rows, columns = math.ceil(height / size) + 2, math.ceil(width / size) + 2
        grid = Image.fromarray(rng.standard_normal((rows, columns)).astype(np.float32))
        window = (0.5, 0.5, 0.5 + width / size, 0.5 + height / size)
        smooth = grid.resize((width, height), Image.Resampling.BICUBIC, box=window)
        total += np.asarray(smooth) * np.float32(0.5**octave)
    return (total - total.mean()) / (total.std() + np.float32(1e-6))


def along(height: int, width: int, angle: float) -> Field:
    """Return each pixel's coordinate along the direction ``angle``, px, (H, W)."""
    x = np.arange(width, dtype=np.float32) + 0.5
    y = np.arange(height, dtype=np.float32) + 0.5
    return x[None, :] * np.float32(math.cos(angle)) + y[:, None] * np.float32(math.sin(angle))


def draw_land(rng: np.random.Generator, height: int, width: int) -> Field:
    """Return fields between stretches of wild grass and soil, (H, W, 3) float32 in 0 .. 255."""
    angle = rng.uniform(0, math.pi)
    u = along(height, width, angle) + 6 * value_noise(rng, height, width, 160, 2)
    v = along(height, width, angle + math.pi / 2)
    strips = np.floor((u - u.min()) / rng.uniform(130, 220)).astype(np.int64)
    shifts, lengths = rng.uniform(0, 200, 64), rng.uniform(140, 330, 64)
    rows = np.floor((v - v.min() + shifts[strips % 64]) / lengths[strips % 64]).astype(np.int64)
    parcel = (strips * 31 + rows * 7) % 97
    colour_of = FIELD_COLOURS[rng.integers(len(FIELD_COLOURS), size=97)] + rng.normal(0, 6, (97, 1))
    land = colour_of.astype(np.float32)[parcel]

    height_of = np.where(rng.random(97) < 0.6, rng.uniform(3, 9, 97), 0.0).astype(np.float32)
    period_of = rng.uniform(5, 13, 97).astype(np.float32)
    direction = np.where((rng.random(97) < 0.5)[parcel], u, v)
    land += (height_of[parcel] * np.sin(direction * (2 * math.pi) / period_of[parcel]))[..., None]

    wild = value_noise(rng, height, width, 60, 4)
    share = _smooth_step(value_noise(rng, height, width, 300, 2), -0.3, 0.3)[..., None]
    blend = _smooth_step(wild, -1.5, 1.5)[..., None]
    grass = WILD_COLOURS[0] * (1 - blend) + WILD_COLOURS[1] * blend
    land = land * (1 - share) + grass * share
    return land + 5 * wild[..., None] + 4 * value_noise(rng, height, width, 7, 3)[..., None]


def lay_out_water(rng: np.random.Generator, height: int, width: int) -> Water:
    """Return where a scene's water lies: a sea over 20 to 32 % of it, or now and then a river."""
    angle = rng.uniform(0, 2 * math.pi)
    size = math.sqrt(height * width)
    if rng.random() < 0.3:
        across = along(height, width, angle + math.pi / 2)
        across -= across.mean() + rng.uniform(-0.2, 0.2) * size
        across += 18 * value_noise(rng, height, width, size, 1)
        half = np.float32(rng.uniform(46, 64))
        return Water(half - np.abs(across), angle, is_river=True)
    into = along(height, width, angle) + 14 * value_noise(rng, height, width, 260, 3)
    shore = np.quantile(into[::4, ::4], 1 - rng.uniform(0.2, 0.32))
    return Water(into - np.float32(shore), angle, is_river=False)


def pour_water(rng: np.random.Generator, land: Field, water: Water) -> Field:
    """Return land (H, W, 3) with water, waves and a sandy shore."""
    height, width = water.depth.shape
    swell = value_noise(rng, height, width, 40, 3)
    phase = along(height, width, rng.uniform(0, 2 * math.pi)) + 5 * swell
    waves = np.sin(phase * (2 * math.pi / rng.uniform(7, 12))) + value_noise(
        rng, height, width, 6, 2
    )
    deepness = _smooth_step(water.depth, 0, 90)[..., None]
    tint = rng.normal(0, 7, 3).astype(np.float32)
    surface = SHALLOW * (1 - deepness) + DEEP * deepness + tint
    surface = surface + (2.5 * waves + 3.5 * swell)[..., None]
    beach = _smooth_step(water.depth, -14, -5)[..., None]
    wet = _smooth_step(water.depth, -1, 1)[..., None]
    shore = land * (1 - 0.85 * beach) + SAND * (0.85 * beach)
    return shore * (1 - wet) + surface * wet


def take_photo(rng: np.random.Generator, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the scene as a camera sees it: uneven light, a colour cast, haze, blur and noise."""
    height, width = pixels.shape[:2]
    blurred = Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(rng.uniform(0.45, 0.75)))
    slope = along(height, width, rng.uniform(0, 2 * math.pi))
    slope = (slope - slope.mean()) / (slope.max() - slope.min())
    light = 1 + rng.uniform(0.06, 0.2) * slope
    light += np.float32(0.035) * value_noise(rng, height, width, 240, 3)
    gains = rng.uniform(0.86, 1.08) * rng.normal(1, 0.035, 3).astype(np.float32)
    photo = np.asarray(blurred, dtype=np.float32) * light[..., None] * gains
    photo = photo * np.float32(0.96) + rng.uniform(0, 12)
    noise = rng.standard_normal((height, width, 3), dtype=np.float32)
    photo += np.float32(rng.uniform(2.5, 5.0)) * noise
    return np.rint(photo).clip(0, 255).astype(np.uint8)


def _smooth_step(values: Field, low: float, high: float) -> Field:
    """Return 0 below ``low``, 1 above ``high`` and a smooth slope between them."""
    share = np.clip((values - low) / (high - low), 0, 1).astype(np.float32)
    return share * share * (3 - 2 * share)
