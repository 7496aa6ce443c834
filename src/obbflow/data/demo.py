"""Demo scenes: seeded, aerial-like images with exact rotated labels, written in DOTA layout."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from obbflow.data.demo_drawing import Canvas
from obbflow.data.demo_ground import draw_land, lay_out_water, pour_water, take_photo, value_noise
from obbflow.data.demo_harbour import build_harbour, sail_ships
from obbflow.data.demo_plan import ScenePlan
from obbflow.data.demo_roads import build_road, fill_road
from obbflow.data.demo_sites import (
    build_apron,
    build_car_park,
    build_heliport,
    build_lorry_park,
    build_tank_farm,
    build_village,
    plant_trees,
)
from obbflow.errors import ConfigError, DataError
from obbflow.tables import CORNERS

logger = logging.getLogger(__name__)

MIN_SIDE = 300
"""A smaller scene has no room for an apron, px."""

DRAWING_VERSION = 1
"""To be raised when the drawings change, so that scenes on disk are drawn again."""

SPLITS = ("train", "val")


def draw_scene(
    rng: np.random.Generator, width: int, height: int
) -> tuple[NDArray[np.uint8], pd.DataFrame]:
    """Return a scene and the labels of its objects.

    Labels are exact: a box is the smallest rectangle around the drawn shape in the object's own
    frame (round tanks: level squares). Objects do not overlap. At a scene's border an object is
    drawn only if about 0.75 of its box or more is inside; its label then reaches beyond the image.

    Args:
        rng: Source of every random number; the same state gives the same scene.
        width: W, px, at least 300.
        height: H, px, at least 300.

    Returns:
        The image (H, W, 3), and a table with a row an object: class_name, x1, y1 .. x4, y4 (px,
        two decimals, clockwise on the screen from the left corner of the front), difficult (bool).

    Raises:
        ValueError: If a side is shorter than 300 px.
    """
    if min(width, height) < MIN_SIDE:
        raise ValueError(f"a scene's sides must be at least {MIN_SIDE} px, got {width} x {height}")
    water = lay_out_water(rng, height, width)
    ground = pour_water(rng, draw_land(rng, height, width), water).clip(0, 255)
    sun = rng.uniform(0, 2 * np.pi)
    plan = ScenePlan(
        Canvas(np.moveaxis(ground, 0, -1).astype(np.uint8)),
        water.depth > 2,
        7 * value_noise(rng, height, width, 50, 5),
        (float(np.cos(sun)), float(np.sin(sun))),
    )
    megapixels = width * height / 1e6

    roads = [build_road(rng, plan) for _ in range(_count(3.0, megapixels))]
    for road in roads:
        fill_road(rng, plan, road)
    _build_some(partial(build_harbour, water), rng, plan, _count(4.0, megapixels))
    sail_ships(rng, plan, water, _count(20.0, megapixels))
    for build, sites in (
        (build_apron, 2.6),
        (build_heliport, 2.2),
        (build_tank_farm, 3.5),
        (build_lorry_park, 2.5),
        (build_car_park, 6.0),
        (build_village, 6.0),
    ):
        _build_some(build, rng, plan, _count(sites, megapixels))
    plant_trees(rng, plan, 32.0)
    return take_photo(rng, plan.canvas.pixels()), _table_of(plan)


def write_demo_scenes(
    root: Path,
    *,
    seed: int,
    train_sizes: Sequence[tuple[int, int]],
    val_sizes: Sequence[tuple[int, int]],
) -> None:
    """Write the demo scenes in DOTA layout, unless they are there already.

    Writes ``root/SPLIT/images/demo_SPLIT_NNN.png`` and ``root/SPLIT/labelTxt/demo_SPLIT_NNN.txt``.
    A scene depends on the seed, its split, its number and its size only. What is there is kept if
    ``root/demo.json`` says that it was drawn with the same settings; that file is written last,
    so an interrupted call is made good by the next one. Scenes of other settings are replaced.

    Args:
        root: Folder of the data set, made when missing.
        seed: 0 or more.
        train_sizes: (width, height) of each training scene, px.
        val_sizes: The same for the validation scenes.

    Raises:
        ConfigError: If a size is below 300 px.
        DataError: If ``root`` holds images or labels that are not demo scenes.
    """
    started = time.perf_counter()
    sizes = dict(zip(SPLITS, (train_sizes, val_sizes), strict=True))
    small = [
        f"demo.{split}_sizes: {list(size)} is too small for a scene, sides must be at least "
        f"{MIN_SIDE} px"
        for split in SPLITS
        for size in sizes[split]
        if min(size) < MIN_SIDE
    ]
    if small:
        raise ConfigError("\n".join(small))
    settings = {
        "drawing_version": DRAWING_VERSION,
        "seed": seed,
        "sizes": {split: [list(size) for size in sizes[split]] for split in SPLITS},
    }
    record = root / "demo.json"
    wanted = {
        (split, index): _scene_files(root, split, index)
        for split in SPLITS
        for index in range(len(sizes[split]))
    }
    stale = _find_stale(root, {path for files in wanted.values() for path in files})
    is_current = _read_settings(record) == settings
    if not is_current:
        record.unlink(missing_ok=True)
    for path in stale:
        path.unlink()

    drawn = n_objects = 0
    for (split, index), (image_path, label_path) in wanted.items():
        if is_current and image_path.is_file() and label_path.is_file():
            continue
        rng = np.random.default_rng([seed, SPLITS.index(split), index])
        image, objects = draw_scene(rng, *sizes[split][index])
        _write_scene(image_path, label_path, image, objects)
        drawn += 1
        n_objects += len(objects)
    _write_bytes(record, (json.dumps(settings, indent=2) + "\n").encode())
    if drawn:
        seconds = time.perf_counter() - started
        logger.info(
            "Drew %d demo scenes with %s objects in %.1f s", drawn, f"{n_objects:,}", seconds
        )


def _count(per_megapixel: float, megapixels: float) -> int:
    """Return how many of a thing a scene gets, at least one."""
    return max(1, round(per_megapixel * megapixels))


def _build_some(
    build: Callable[[np.random.Generator, ScenePlan], bool],
    rng: np.random.Generator,
    plan: ScenePlan,
    count: int,
) -> None:
    """Build a place ``count`` times, if needed with a few more attempts of other sizes."""
    for _ in range(count + 4):
        if count == 0:
            return
        count -= build(rng, plan)


def _table_of(plan: ScenePlan) -> pd.DataFrame:
    """Return the labelled objects of a plan, one row each."""
    objects = [placed for placed in plan.placed if placed.class_name]
    corners = np.array([placed.corners.ravel() for placed in objects]).reshape(-1, 8)
    table = pd.DataFrame(corners.round(2), columns=list(CORNERS))
    table.insert(0, "class_name", [placed.class_name for placed in objects])
    table["difficult"] = [placed.difficult for placed in objects]
    return table


def _scene_files(root: Path, split: str, index: int) -> tuple[Path, Path]:
    """Return the image and label file of a scene."""
    name = f"demo_{split}_{index:03d}"
    return root / split / "images" / f"{name}.png", root / split / "labelTxt" / f"{name}.txt"


def _find_stale(root: Path, wanted: set[Path]) -> list[Path]:
    """Return demo files that are no longer wanted; refuse a folder with anybody else's files."""
    found = [
        path
        for split in SPLITS
        for folder in ("images", "labelTxt")
        for path in sorted((root / split / folder).glob("*"))
        if path not in wanted
    ]
    foreign = [path for path in found if not path.name.startswith("demo_")]
    if foreign:
        raise DataError(
            f"{foreign[0]}: {len(foreign)} file(s) in the folder of the demo scenes are not demo "
            "scenes; move them elsewhere, and name their folder in dataset.data_root to use them"
        )
    return found


def _read_settings(record: Path) -> object:
    """Return what the scenes on disk were drawn with, None when that is not known."""
    if not record.is_file():
        return None
    try:
        settings: object = json.loads(record.read_text(encoding="utf-8"))
    except ValueError:
        logger.warning("%s is not readable JSON: drawing the demo scenes again", record)
        return None
    return settings


def _write_scene(
    image_path: Path, label_path: Path, image: NDArray[np.uint8], objects: pd.DataFrame
) -> None:
    """Write a scene's label, then its image, each complete or not at all."""
    lines = ["imagesource:obbflow demo", "gsd:0.5"]
    for corners, class_name, difficult in zip(
        objects[list(CORNERS)].to_numpy(), objects["class_name"], objects["difficult"], strict=True
    ):
        numbers = " ".join(f"{number:.2f}" for number in corners)
        lines.append(f"{numbers} {class_name} {int(difficult)}")
    _write_bytes(label_path, ("\n".join(lines) + "\n").encode())
    unfinished = image_path.with_name(f"{image_path.name}.partial")
    image_path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(unfinished, format="PNG", compress_level=3)
    unfinished.replace(image_path)


def _write_bytes(path: Path, content: bytes) -> None:
    """Write a file under another name first, so that nobody sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.partial")
    unfinished.write_bytes(content)
    unfinished.replace(path)
