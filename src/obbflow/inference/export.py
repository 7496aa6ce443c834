"""Detections of whole images -> files of other programs: DOTA Task 1 and GeoJSON."""

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from obbflow.data.images import Georeference, read_georeference
from obbflow.errors import DataError
from obbflow.geometry import rbox_to_qbox
from obbflow.tables import DETECTIONS, RBOX, check_table

logger = logging.getLogger(__name__)

PIXEL_FILE = "pixels.geojson"
"""All detections, in px of their images."""

_NOT_IN_FILE_NAMES = re.compile(r'[/\\:*?"<>|\x00-\x1f]')
_BLANKS = re.compile(r"\s+")
_PX_DIGITS, _METRE_DIGITS, _DEGREE_DIGITS = 2, 3, 8  # 8 digits of a degree are about 1 mm
_SCORE_DIGITS = 6
_WGS84 = 4326


def task1_files(predictions: pd.DataFrame, class_names: Sequence[str]) -> dict[str, str]:
    """Return the files of a DOTA Task 1 submission: ``Task1_<class>.txt`` -> its text.

    A line is ``image score x1 y1 x2 y2 x3 y3 x4 y4``: ten fields, whatever the image is called
    (blanks in its name become ``_``). A class without a detection has an empty file, and all such
    classes are named in one warning: the server is reported to refuse empty files.

    Args:
        predictions: Table ``DETECTIONS``, px of whole images.
        class_names: All classes of the detector.

    Raises:
        ValueError: If a class of ``predictions`` is not in ``class_names``.
        DataError: If two classes would have the same file.
    """
    check_table(predictions, DETECTIONS, "predictions")
    unknown = set(predictions["class_name"]) - set(class_names)
    if unknown:
        raise ValueError(f"class_names lacks {', '.join(sorted(map(str, unknown)))}")
    lines = _task1_lines(predictions)
    rows_of = predictions.groupby("class_name", sort=False).indices
    files: dict[str, str] = {}
    for name in class_names:
        file = f"Task1_{_NOT_IN_FILE_NAMES.sub('_', name)}.txt"
        if file in files:
            raise DataError(
                f"{file}: two classes would share this file, {name!r} is one; rename one of them "
                "in dataset.map_labels and train again"
            )
        files[file] = "".join(lines[row] for row in rows_of.get(name, ()))
    empty = [name for name in class_names if name not in rows_of]
    if empty:
        logger.warning(
            "No detection of %s: empty Task 1 files, which the DOTA server may refuse",
            ", ".join(empty),
        )
    return files


def geojson_files(predictions: pd.DataFrame, images: pd.DataFrame) -> dict[str, str]:
    """Return GeoJSON feature collections: file name -> text.

    ``pixels.geojson`` holds every detection in px of its image. For images with a georeference
    there is one more file for each coordinate reference system, such as
    ``map_EPSG_32631.geojson``, in its coordinates and naming it.

    Args:
        predictions: Table ``DETECTIONS``, px of whole images.
        images: Table ``PREDICTION_IMAGES``; the files are asked for their georeference.

    Returns:
        One polygon a detection, its corners counter-clockwise, with image, class, score and the
        rotated box as properties.
    """
    check_table(predictions, DETECTIONS, "predictions")
    corners = _corners(predictions).reshape(-1, 4, 2)
    pixels = {
        "type": "FeatureCollection",
        "coordinate_system": "px of the image; x to the right, y down from its top left corner",
        "features": _features(predictions, corners, _PX_DIGITS),
    }
    files = {PIXEL_FILE: json.dumps(pixels, ensure_ascii=False)}
    references = {
        image_id: read_georeference(Path(path))
        for image_id, path in images[["image_id", "path"]].itertuples(index=False)
    }
    located = {name: each for name, each in references.items() if each is not None}
    logger.info(
        "%d of %d images have a georeference%s",
        len(located),
        len(references),
        "" if located else ": GeoJSON in pixel coordinates only",
    )
    systems = {(each.epsg, each.is_geographic) for each in located.values()}
    for epsg, is_geographic in sorted(systems, key=str):
        members = {
            name: each
            for name, each in located.items()
            if (each.epsg, each.is_geographic) == (epsg, is_geographic)
        }
        collection = _map_collection(predictions, corners, members)
        kind = "geographic" if is_geographic else "projected"
        name = f"EPSG_{epsg}" if epsg else f"unknown_{kind}"
        files[f"map_{name}.geojson"] = json.dumps(collection, ensure_ascii=False)
        if epsg is None:
            logger.warning(
                "%s: names no EPSG code, map_%s.geojson is without a reference system",
                next(iter(members)),
                name,
            )
    return files


def _map_collection(
    predictions: pd.DataFrame, corners: NDArray[np.float64], members: dict[str, Georeference]
) -> dict[str, Any]:
    """Return the detections of the images of one reference system, in its coordinates."""
    first = next(iter(members.values()))
    features = []
    rows_of = predictions.groupby("image_id", sort=False).indices
    for image_id, reference in members.items():
        rows = rows_of.get(image_id, np.empty(0, dtype=np.int64))
        digits = _DEGREE_DIGITS if reference.is_geographic else _METRE_DIGITS
        features += _features(predictions.iloc[rows], reference.to_map(corners[rows]), digits)
    collection: dict[str, Any] = {"type": "FeatureCollection"}
    if first.epsg is not None:
        name = f"urn:ogc:def:crs:EPSG::{first.epsg}"
        if first.epsg == _WGS84:  # the code by itself would mean latitude first
            name = "urn:ogc:def:crs:OGC:1.3:CRS84"
        collection["crs"] = {"type": "name", "properties": {"name": name}}
    return {**collection, "features": features}


def _features(
    predictions: pd.DataFrame, corners: NDArray[np.float64], digits: int
) -> list[dict[str, Any]]:
    """Return one polygon a detection; ``corners`` (N, 4, 2) are in the order of the rows."""
    following = np.roll(corners, -1, axis=1)
    twice_area = (corners[..., 0] * following[..., 1] - corners[..., 1] * following[..., 0]).sum(1)
    counter_clockwise = np.where((twice_area < 0)[:, None, None], corners[:, ::-1], corners)
    rings = np.concatenate([counter_clockwise, counter_clockwise[:, :1]], axis=1).round(digits)
    properties = predictions.round({"score": _SCORE_DIGITS} | dict.fromkeys(RBOX, 4))
    return [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": row,
        }
        for ring, row in zip(rings.tolist(), properties.to_dict("records"), strict=True)
    ]


def _corners(predictions: pd.DataFrame) -> NDArray[np.float64]:
    """Return the corners of all rows, (N, 8) px."""
    rboxes = torch.tensor(predictions[list(RBOX)].to_numpy("float64"))
    return rbox_to_qbox(rboxes).numpy()


def _task1_lines(predictions: pd.DataFrame) -> list[str]:
    """Return the line of each row."""
    lines = []
    for image_id, score, corners in zip(
        predictions["image_id"], predictions["score"], _corners(predictions), strict=True
    ):
        numbers = [_number(score, _SCORE_DIGITS), *(_number(each, _PX_DIGITS) for each in corners)]
        lines.append(f"{_BLANKS.sub('_', image_id)} {' '.join(numbers)}\n")
    return lines


def _number(value: float, digits: int) -> str:
    return np.format_float_positional(value, precision=digits, trim="-")
