"""Scenes for the tiling benchmark, in DOTA layout."""

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

OBJECTS = 400  # a scene
_GROUND_PX = 8  # of the smooth ground below the noise
_BLOCK = 512  # of a TIFF


def draw_scene(side: int, seed: int, noise: int) -> tuple[NDArray[np.uint8], list[str]]:
    """Return a scene and its label lines: rectangles on smooth ground with sensor noise."""
    rng = np.random.default_rng(seed)
    small = rng.integers(40, 200, (side // _GROUND_PX, side // _GROUND_PX, 3), dtype=np.uint8)
    ground = Image.fromarray(small).resize((side, side), Image.Resampling.BICUBIC)
    pixels = np.array(ground, dtype=np.int16)
    lines = []
    for x, y in rng.integers(0, side - 60, (OBJECTS, 2)):
        w, h = rng.integers(10, 60, 2)
        pixels[y : y + h, x : x + w] = rng.integers(0, 256, 3)
        lines.append(f"{x} {y} {x + w} {y} {x + w} {y + h} {x} {y + h} ship 0")
    pixels += rng.integers(-noise, noise + 1, pixels.shape, dtype=np.int16)
    return pixels.clip(0, 255).astype(np.uint8), lines


def draw_data(root: Path, scenes: int, side: int, noise: int) -> None:
    """Write PNG scenes, all in train but the first, which is in val."""
    for number in range(scenes):
        pixels, lines = draw_scene(side, number, noise)
        image = _add_scene(root, "val" if number == 0 else "train", f"P{number}.png", lines)
        Image.fromarray(pixels).save(image, compress_level=1)


def draw_large(root: Path, side: int, repeats: int, noise: int) -> None:
    """Write one PNG of ``repeats`` x ``repeats`` scenes, in val and by hard link in train."""
    from obbflow.data.tile_pixels import encode_png

    pixels, lines = draw_scene(side, 0, noise)
    first = _add_scene(root, "val", "P0.png", lines)
    with first.open("wb") as stream:  # the fastest way to a PNG
        stream.writelines(encode_png(np.tile(pixels, (repeats, repeats, 1))))
    _add_scene(root, "train", "P1.png", lines).hardlink_to(first)


def draw_giant(root: Path, side: int, noise: int) -> None:
    """Write one tiled TIFF, block by block: JPEG, the cells of one scene again and again."""
    import warnings

    import rasterio
    from rasterio.errors import NotGeoreferencedWarning

    warnings.filterwarnings("ignore", category=NotGeoreferencedWarning)
    cell = 4 * _BLOCK
    if shutil.disk_usage(root.parent).free < 3 * side * side:
        raise SystemExit(f"{root.parent}: a TIFF of {side} x {side} px needs more room")
    pixels, lines = draw_scene(cell, 0, noise)
    bands = np.ascontiguousarray(pixels.transpose(2, 0, 1))
    profile = {"driver": "GTiff", "count": 3, "dtype": "uint8", "width": side, "height": side}
    profile |= {"tiled": True, "blockxsize": _BLOCK, "blockysize": _BLOCK}
    profile |= {"compress": "jpeg", "photometric": "ycbcr", "interleave": "pixel"}
    with rasterio.open(_add_scene(root, "train", "P0.tif", lines), "w", **profile) as file:
        for y in range(0, side, cell):
            for x in range(0, side, cell):
                height, width = min(cell, side - y), min(cell, side - x)
                window = ((y, y + height), (x, x + width))
                file.write(bands[:, :height, :width], window=window)


def copy_scenes(root: Path, target: Path, times: int) -> None:
    """Copy the scenes of a data set several times, by hard link."""
    for path in sorted(root.rglob("*")):
        if path.is_file():
            folder = target / path.relative_to(root).parent
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(times):
                (folder / f"{path.stem}_{number}{path.suffix}").hardlink_to(path)


def _add_scene(root: Path, split: str, name: str, lines: list[str]) -> Path:
    """Write the labels of a scene and return where its image belongs."""
    for folder in ("images", "labelTxt"):
        (root / split / folder).mkdir(parents=True, exist_ok=True)
    labels = (root / split / "labelTxt" / name).with_suffix(".txt")
    labels.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return root / split / "images" / name
