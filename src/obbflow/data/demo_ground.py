"""The ground below a demo scene (fields, water) and the camera above it (light, blur, noise)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

Field = NDArray[np.float32]
"""(H, W): one number a pixel."""

Planes = NDArray[np.float32]
"""(3, H, W): red, green and blue, 0 .. 255; numpy adds a field to this layout at full speed."""

FIELD_COLOURS = np.array(
    [
        (104, 122, 70), (128, 136, 82), (150, 142, 96), (170, 154, 108), (128, 104, 78),
        (112, 92, 72), (88, 110, 62), (142, 130, 102), (184, 170, 124), (98, 116, 84),
    ],
    dtype=np.float32,
)  # fmt: skip
GRASS, DRY_GRASS, DEEP, SHALLOW, SAND = (
    np.array(colour, dtype=np.float32)[:, None, None]
    for colour in ((92, 106, 62), (140, 128, 94), (38, 66, 84), (62, 98, 104), (188, 174, 138))
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
    grid = _random_grid(rng, math.ceil(height / cell) + 2, math.ceil(width / cell) + 2)
    for octave in range(1, octaves):
        rows, columns = grid.shape
        finer = _random_grid(rng, 2 * rows, 2 * columns)
        grid = _resize(grid, 2 * rows, 2 * columns) + finer * np.float32(0.5**octave)
    size = cell / 2 ** (octaves - 1)
    noise = _resize(grid, height, width, (1, 1, 1 + width / size, 1 + height / size))
    mean, deviation = noise.mean(), noise.std()
    return (noise - mean) / (deviation + np.float32(1e-6))


def along(height: int, width: int, angle: float) -> Field:
    """Return each pixel's coordinate along the direction ``angle``, px, (H, W)."""
    x = np.arange(width, dtype=np.float32) + 0.5
    y = np.arange(height, dtype=np.float32) + 0.5
    return x[None, :] * np.float32(math.cos(angle)) + y[:, None] * np.float32(math.sin(angle))


def draw_land(rng: np.random.Generator, height: int, width: int) -> Planes:
    """Return fields between stretches of wild grass and soil."""
    angle = rng.uniform(0, math.pi)
    u = along(height, width, angle) + 6 * value_noise(rng, height, width, 160, 2)
    v = along(height, width, angle + math.pi / 2)
    strips = ((u - u.min()) / rng.uniform(130, 220)).astype(np.int32)
    shifts = rng.uniform(0, 200, 64).astype(np.float32)[strips & 63]
    lengths = rng.uniform(140, 330, 64).astype(np.float32)[strips & 63]
    parcels = (strips * 31 + ((v - v.min() + shifts) / lengths).astype(np.int32) * 7) & 127
    tones = FIELD_COLOURS[rng.integers(len(FIELD_COLOURS), size=128)] + rng.normal(0, 6, (128, 1))
    heights = np.where(rng.random(128) < 0.6, rng.uniform(3, 9, 128), 0).astype(np.float32)
    pitches = (2 * math.pi / rng.uniform(5, 13, 128)).astype(np.float32)
    rows = np.where((rng.random(128) < 0.5).take(parcels), u, v)
    rows *= pitches.take(parcels)
    furrows = np.sin(rows, out=rows)
    furrows *= heights.take(parcels)

    wild = value_noise(rng, height, width, 60, 4)
    texture = 5 * wild + 4 * value_noise(rng, height, width, 7, 3)
    share = _smooth_step(value_noise(rng, height, width, 300, 2), -0.3, 0.3)
    dryness = _smooth_step(wild, -1.5, 1.5)
    land = np.empty((3, height, width), dtype=np.float32)
    for plane, tone, green, dry in zip(land, tones.T, GRASS.flat, DRY_GRASS.flat, strict=True):
        fields = tone.astype(np.float32).take(parcels)
        fields += furrows
        plane[:] = dryness
        plane *= dry - green
        plane += green
        plane -= fields
        plane *= share
        plane += fields
        plane += texture
    return land


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


def pour_water(rng: np.random.Generator, land: Planes, water: Water) -> Planes:
    """Return land with water, waves and a sandy shore."""
    height, width = water.depth.shape
    swell = value_noise(rng, height, width, 40, 3)
    phase = along(height, width, rng.uniform(0, 2 * math.pi)) + 5 * swell
    waves = np.sin(phase * (2 * math.pi / rng.uniform(7, 12)))
    waves += value_noise(rng, height, width, 6, 2)
    tint = rng.normal(0, 7, (3, 1, 1)).astype(np.float32)
    deepness = _smooth_step(water.depth, 0, 90)
    surface = (SHALLOW + tint) * (1 - deepness) + (DEEP + tint) * deepness
    surface += 2.5 * waves + 3.5 * swell
    beach = 0.85 * _smooth_step(water.depth, -14, -5)
    wet = _smooth_step(water.depth, -1, 1)
    return land * ((1 - beach) * (1 - wet)) + SAND * (beach * (1 - wet)) + surface * wet


def take_photo(rng: np.random.Generator, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the scene as a camera sees it: uneven light, a colour cast, haze, blur and noise."""
    height, width = pixels.shape[:2]
    blurred = Image.fromarray(pixels).filter(ImageFilter.BoxBlur(rng.uniform(0.35, 0.6)))
    slope = along(height, width, rng.uniform(0, 2 * math.pi))
    slope = (slope - slope.mean()) / (slope.max() - slope.min())
    light = 1 + rng.uniform(0.06, 0.2) * slope
    light += np.float32(0.035) * value_noise(rng, height, width, 240, 3)
    gains = 0.96 * rng.uniform(0.9, 1.15) * rng.normal(1, 0.035, 3)
    haze, noise_level = rng.uniform(0, 12), rng.uniform(2.5, 5.0)
    photo = np.empty_like(pixels)
    for channel, band in enumerate(blurred.split()):
        noise = rng.standard_normal((height, width), dtype=np.float32)
        values = np.asarray(band, dtype=np.float32) * light * float(gains[channel])
        values += noise * noise_level + haze
        photo[..., channel] = np.rint(values).clip(0, 255)
    return photo


def _random_grid(rng: np.random.Generator, rows: int, columns: int) -> Field:
    """Return independent normal numbers."""
    return rng.standard_normal((rows, columns), dtype=np.float32)


def _resize(
    grid: Field, height: int, width: int, window: tuple[float, float, float, float] | None = None
) -> Field:
    """Return a grid, or a window x1, y1, x2, y2 of it, smoothly stretched to (height, width)."""
    stretched = Image.fromarray(grid).resize((width, height), Image.Resampling.BICUBIC, box=window)
    return np.asarray(stretched)


def _smooth_step(values: Field, low: float, high: float) -> Field:
    """Return 0 below ``low``, 1 above ``high`` and a smooth slope between them."""
    share = np.clip((values - low) / (high - low), 0, 1).astype(np.float32)
    return share * share * (3 - 2 * share)
