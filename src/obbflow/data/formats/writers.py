"""Our tables as data sets of other formats: DOTA, Ultralytics YOLO-OBB and COCO.

Each writer makes the label files below a folder and returns where the image files belong, so that
the folder can be read with the format's own reader.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from obbflow.data.formats.label_lines import parse_label_text
from obbflow.data.formats.source import SPLITS, shorten
from obbflow.data.formats.yolo_obb import label_path
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, CORNERS, IMAGES, check_table

Writer = Callable[[pd.DataFrame, pd.DataFrame, Path], dict[str, Path]]
"""(table ``images``, table ``annotations``, folder) -> image_id -> where its file belongs."""

_PX_DIGITS, _FRACTION_DIGITS = 3, 8


class _Object(NamedTuple):
    """A row of ``annotations``; ``corners`` is (8,)."""

    object_id: int
    class_name: str
    corners: NDArray[np.float64]
    difficult: bool
    ignore: bool


class _Image(NamedTuple):
    """A row of ``images``, its name below the split's folder, and its objects."""

    image_id: str
    name: str
    suffix: str
    split: str
    width: int
    height: int
    gsd: float
    objects: list[_Object]


def write_dota(images: pd.DataFrame, annotations: pd.DataFrame, target: Path) -> dict[str, Path]:
    """Write DOTA label files, corners to 0.001 px, and return where the images belong.

    The layout is target/train/images, target/train/labelTxt, target/val/... A known ground sampling
    distance is a ``gsd:`` line. Ignore regions are written as difficult objects.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        target: A folder; files there are replaced, each as a whole.

    Raises:
        DataError: If two images would have one name, or a class cannot be written in this format.
    """
    _require_readable([*annotations["class_name"].unique()])
    places = {}
    for image in _each_image(images, annotations):
        head = f"gsd:{image.gsd:g}\n" if image.gsd > 0 else ""
        lines = [
            f"{_join(each.corners, _PX_DIGITS)} {each.class_name} "
            f"{int(each.difficult or each.ignore)}\n"
            for each in image.objects
        ]
        folder = target / image.split
        _write(folder / "labelTxt" / f"{image.name}.txt", head + "".join(lines))
        places[image.image_id] = folder / "images" / f"{image.name}{image.suffix}"
    return places


def write_yolo_obb(
    images: pd.DataFrame, annotations: pd.DataFrame, target: Path
) -> dict[str, Path]:
    """Write Ultralytics label files and data.yaml, and return where the images belong.

    The layout is target/images/train, target/labels/train, ...; coordinates are written to 1e-8 of
    the image's size. Classes are numbered in order of their names. The format has no difficulty, so
    difficult objects become ordinary ones; ignore regions are left out.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        target: A folder; files there are replaced, each as a whole.

    Raises:
        DataError: If two images would have one name.
    """
    names = sorted(annotations["class_name"].unique())
    numbers = {name: number for number, name in enumerate(names)}
    places = {}
    for image in _each_image(images, annotations):
        sizes = np.array([image.width, image.height] * 4)
        lines = [
            f"{numbers[each.class_name]} {_join(each.corners / sizes, _FRACTION_DIGITS)}\n"
            for each in image.objects
            if not each.ignore
        ]
        place = target / "images" / image.split / f"{image.name}{image.suffix}"
        _write(label_path(target, place), "".join(lines))
        places[image.image_id] = place
    splits = [split for split in SPLITS if images["split"].eq(split).any()]
    content = {**{split: f"images/{split}" for split in splits}, "names": dict(enumerate(names))}
    _write(target / "data.yaml", yaml.safe_dump(content, allow_unicode=True, sort_keys=False))
    return places


def write_coco(images: pd.DataFrame, annotations: pd.DataFrame, target: Path) -> dict[str, Path]:
    """Write one COCO file a split, corners to 0.001 px, and return where the images belong.

    The layout is target/annotations/instances_train.json, target/images/train, ... An object is a
    polygon of its four corners, with the level box around it as ``bbox``, and ``difficult``; ignore
    regions are difficult objects.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations``.
        target: A folder; files there are replaced, each as a whole.

    Raises:
        DataError: If two images would have one name.
    """
    names = sorted(annotations["class_name"].unique())
    numbers = {name: number for number, name in enumerate(names, start=1)}
    categories = [{"id": number, "name": name} for name, number in numbers.items()]
    places = {}
    of_split: dict[str, dict[str, list[dict[str, Any]]]] = {
        split: {"images": [], "annotations": [], "categories": categories}
        for split in SPLITS
        if images["split"].eq(split).any()
    }
    for number, image in enumerate(_each_image(images, annotations), start=1):
        content = of_split[image.split]
        file_name = f"{image.name}{image.suffix}"
        size = {"width": image.width, "height": image.height}
        content["images"].append({"id": number, "file_name": file_name, **size})
        for each in image.objects:
            content["annotations"].append(
                {
                    "id": each.object_id + 1,
                    "image_id": number,
                    "category_id": numbers[each.class_name],
                    **_coco_shape(each.corners.round(_PX_DIGITS)),
                    "iscrowd": 0,
                    "difficult": int(each.difficult or each.ignore),
                }
            )
        places[image.image_id] = target / "images" / image.split / file_name
    for split, content in of_split.items():
        path = target / "annotations" / f"instances_{split}.json"
        _write(path, json.dumps(content, ensure_ascii=False))
    return places


WRITERS: dict[str, Writer] = {
    "dota": write_dota,
    "yolo_obb": write_yolo_obb,
    "coco": write_coco,
}
"""Format, as ``dataset.format`` names it -> its writer."""


def _each_image(images: pd.DataFrame, annotations: pd.DataFrame) -> Iterator[_Image]:
    """Yield the images in the order of their table, each with its objects."""
    check_table(images, IMAGES, "images")
    check_table(annotations, ANNOTATIONS, "annotations")
    corners = annotations[list(CORNERS)].to_numpy(np.float64)
    columns = ["object_id", "class_name", "difficult", "ignore"]
    ids, classes, difficult, ignore = (annotations[column].tolist() for column in columns)
    rows_of = annotations.groupby("image_id", sort=False).indices
    seen = set()
    for row in images.to_dict("records"):
        split, name = row["split"], row["image_id"].removeprefix(f"{row['split']}/")
        if (split, name) in seen:
            raise DataError(
                f"{row['path']}: two images would be called {split}/{name}; rename one of them"
            )
        seen.add((split, name))
        objects = [
            _Object(ids[n], classes[n], corners[n], difficult[n], ignore[n])
            for n in rows_of.get(row["image_id"], ())
        ]
        size = row["width"], row["height"]
        yield _Image(
            row["image_id"], name, Path(row["path"]).suffix, split, *size, row["gsd"], objects
        )


def _coco_shape(corners: NDArray[np.float64]) -> dict[str, Any]:
    x, y = corners[::2], corners[1::2]
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    level = [x.min(), y.min(), x.max() - x.min(), y.max() - y.min()]
    return {
        "segmentation": [corners.tolist()],
        "bbox": [round(float(value), _PX_DIGITS) for value in level],
        "area": round(float(area), _PX_DIGITS),
    }


def _join(numbers: NDArray[np.float64], digits: int) -> str:
    return " ".join(f"{number:.{digits}f}".rstrip("0").rstrip(".") for number in numbers)


def _require_readable(class_names: list[str]) -> None:
    """Raise for classes that a line cannot hold unchanged, such as "1 2" or one with two blanks."""
    changed = []
    for name in class_names:
        objects = parse_label_text(f"0 0 1 0 1 1 0 1 {name} 0").objects
        if not objects or objects[0].class_name != name:
            changed.append(repr(name))
    if changed:
        raise DataError(
            f"{shorten(changed)}: classes whose names DOTA's lines cannot hold; rename them, or "
            "write another format"
        )


def _write(path: Path, text: str) -> None:
    """Write a file that is there whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(text, encoding="utf-8", newline="\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
