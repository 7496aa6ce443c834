"""What is done about labels that are no proper boxes, and the issues that say so.

Each fault is found for all objects at once. An object that is dropped or repaired has an issue of
its own, with file and line; what is kept as it is has one issue an image and kind.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import shapely
import torch
from numpy.typing import NDArray

from obbflow.config import DatasetSection
from obbflow.data.class_names import find_near_misses
from obbflow.data.class_rules import apply_class_rules
from obbflow.geometry import qbox_to_rbox
from obbflow.tables import ANNOTATIONS, CORNERS, DATA_ISSUES, check_table, make_table

MIN_SIDE = 0.05
"""An object whose smallest rectangle is thinner has no area, px: labels are written to 0.1 px."""
TINY_SIDE = 2.0
"""A shorter side is reported, px."""
LONG_TO_IMAGE = 1.0
"""A long side beyond this share of the image's diagonal is reported."""
LONG_TO_SHORT = 50.0
"""An aspect ratio beyond this is reported."""
MANY_UPRIGHT = 20
"""A class of which all objects are upright boxes is reported from this many objects on."""

_LISTED_LINES = 5


def check_annotations(
    images: pd.DataFrame, annotations: pd.DataFrame, issues: pd.DataFrame, dataset: DatasetSection
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the objects that count, and everything that was noticed about the data.

    After the class rules of ``dataset``: corners in crossing order are put in order; objects
    without area, fully outside of their image, or written twice are dropped; objects partly
    outside and of unusual size, classes without an angle and names nearly those of other classes
    are kept as they are.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations`` as read.
        issues: Table ``data_issues`` of reading.
        dataset: Section ``dataset``.

    Returns:
        Tables ``annotations`` and ``data_issues``.

    Raises:
        DataError: If a class is not allowed.
    """
    kept, class_issues = apply_class_rules(annotations, dataset)
    kept, repairs = _repair_bowties(kept)
    # The user has written these names; a class that is nearly a look-alike's is worth a word.
    expected = (*(dataset.allowed_classes or ()), *(dataset.lookalike_classes or ()))
    names = find_near_misses(kept, expected)
    found = [issues, class_issues, names, repairs]
    kept = kept.assign(**_measure_sides(kept))
    for check in (_drop_flat, _drop_outside, _drop_duplicates):
        kept, more = check(kept, images)
        found.append(more)
    found += [_report_partly_outside(kept, images), *_report_sizes(kept, images)]
    found.append(_report_upright(kept[~kept["lookalike"]]))
    filled = [table for table in found if len(table)]
    all_issues = pd.concat(filled, ignore_index=True) if filled else issues
    kept = kept[list(ANNOTATIONS)].reset_index(drop=True)
    return check_table(kept, ANNOTATIONS, "annotations"), make_table(all_issues, DATA_ISSUES)


def corners_of(annotations: pd.DataFrame) -> NDArray[np.float64]:
    """Return the corners of all objects, (N, 4, 2) px."""
    # a copy: pandas may lend its own memory, read-only
    return annotations[list(CORNERS)].to_numpy(np.float64, copy=True).reshape(-1, 4, 2)


def is_crossed(corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each quadrilateral whether two of its edges cross.

    Args:
        corners: (N, 4, 2) px; N may be 0.

    Returns:
        (N,), False where edges only touch.
    """
    a, b, c, d = (corners[:, index] for index in range(4))
    return _segments_cross(a, b, c, d) | _segments_cross(b, c, d, a)


def order_corners(corners: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners in the order of their angle around their mean, the first one first.

    Args:
        corners: (N, 4, 2) px, of quadrilaterals whose corners are those of a convex one.

    Returns:
        (N, 4, 2), clockwise on the screen.
    """
    around = corners - corners.mean(axis=1, keepdims=True)
    angles = np.arctan2(around[..., 1], around[..., 0])
    order = np.argsort((angles - angles[:, :1]) % (2 * np.pi), axis=1, kind="stable")
    return np.take_along_axis(corners, order[..., None], axis=1)


def _segments_cross(
    a: NDArray[np.float64],
    b: NDArray[np.float64],
    c: NDArray[np.float64],
    d: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Return whether the segments a-b and c-d, each (N, 2), cross inside both."""
    return (_side(a, b, c) * _side(a, b, d) < 0) & (_side(c, d, a) * _side(c, d, b) < 0)


def _side(
    start: NDArray[np.float64], end: NDArray[np.float64], point: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return -1, 0 or 1 for the side of the line from start to end on which the point lies."""
    along, to = end - start, point - start
    return np.sign(along[:, 0] * to[:, 1] - along[:, 1] * to[:, 0])


def _repair_bowties(annotations: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    corners = corners_of(annotations)
    crossed = is_crossed(corners)
    if not crossed.any():
        return annotations, _no_issues()
    corners[crossed] = order_corners(corners[crossed])
    repaired = annotations.copy()
    repaired[list(CORNERS)] = corners.reshape(-1, 8)
    issues = _issue_each(
        annotations[crossed],
        "crossed_corners",
        lambda row: f"the corners of {row.class_name!r} are in crossing order",
        "repaired",
    )
    return repaired, issues


def _drop_flat(annotations: pd.DataFrame, _: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    flat = annotations["short_side"] < MIN_SIDE
    issues = _issue_each(
        annotations[flat],
        "zero_area",
        lambda row: f"{row.class_name!r} has no area (its smallest side is under {MIN_SIDE} px)",
        "dropped",
    )
    return annotations[~flat], issues


def _drop_outside(
    annotations: pd.DataFrame, images: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    sizes = _image_sizes(annotations, images)
    outside = np.zeros(len(annotations), dtype=bool)
    rows = np.flatnonzero(_reaches_out(annotations, sizes))
    hulls = shapely.convex_hull(shapely.polygons(corners_of(annotations.iloc[rows])))
    frames = shapely.box(0, 0, sizes[rows, 0], sizes[rows, 1])
    outside[rows] = shapely.area(shapely.intersection(hulls, frames)) <= 0
    issues = _issue_each(
        annotations[outside],
        "outside_image",
        lambda row: f"{row.class_name!r} lies fully outside of its image",
        "dropped",
    )
    return annotations[~outside], issues


def _drop_duplicates(
    annotations: pd.DataFrame, _: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    corners = corners_of(annotations)
    order = np.lexsort((corners[..., 1], corners[..., 0]), axis=1)
    corners = np.take_along_axis(corners, order[..., None], axis=1).reshape(-1, 8)
    keys = pd.DataFrame(corners, index=annotations.index)
    keys = keys.join(annotations[["image_id", "class_name"]])
    again = keys.duplicated()
    if not again.any():
        return annotations, _no_issues()
    first = annotations.groupby([keys[name] for name in keys])["source_line"].transform("first")
    issues = _issue_each(
        annotations[again].assign(first=first[again]),
        "duplicate",
        lambda row: f"{row.class_name!r} with the same corners stands in line {row.first} already",
        "dropped",
    )
    return annotations[~again], issues


def _report_partly_outside(annotations: pd.DataFrame, images: pd.DataFrame) -> pd.DataFrame:
    reaches_out = _reaches_out(annotations, _image_sizes(annotations, images))
    return _issue_per_image(
        annotations[reaches_out], "partly_outside", "objects partly outside of the image"
    )


def _report_sizes(annotations: pd.DataFrame, images: pd.DataFrame) -> list[pd.DataFrame]:
    diagonals = np.hypot(*_image_sizes(annotations, images).T)
    long, short = annotations["long_side"], annotations["short_side"]
    return [
        _issue_per_image(annotations[is_unusual], kind, f"objects {what}")
        for is_unusual, kind, what in (
            (short < TINY_SIDE, "tiny", f"with a side under {TINY_SIDE} px"),
            (long > LONG_TO_IMAGE * diagonals, "huge", "longer than the image's diagonal"),
            (long > LONG_TO_SHORT * short, "thin", f"over {LONG_TO_SHORT:g} times as long as wide"),
        )
    ]


def _report_upright(annotations: pd.DataFrame) -> pd.DataFrame:
    """Return a note for each class of which all of many objects are upright boxes."""
    corners = corners_of(annotations)
    edges = corners - np.roll(corners, 1, axis=1)
    is_upright = pd.Series((edges == 0).any(axis=2).all(axis=1), index=annotations.index)
    by_class = is_upright.groupby(annotations["class_name"]).agg(["all", "size"])
    names = by_class.index[by_class["all"] & (by_class["size"] >= MANY_UPRIGHT)]
    first = annotations[annotations["class_name"].isin(names)].drop_duplicates("class_name")
    issues = _issue_each(
        first,
        "no_angle",
        lambda row: (
            f"all {by_class['size'][row.class_name]:,} objects of {row.class_name!r} are upright "
            "boxes: no angle can be learned from them"
        ),
        "kept",
    )
    return issues.assign(severity="info")


def _measure_sides(annotations: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Return the long and short side of each object's smallest rectangle, px."""
    qboxes = torch.from_numpy(corners_of(annotations).reshape(-1, 8))
    sides = qbox_to_rbox(qboxes)[:, 2:4].numpy()
    return {"long_side": sides[:, 0], "short_side": sides[:, 1]}


def _image_sizes(annotations: pd.DataFrame, images: pd.DataFrame) -> NDArray[np.float64]:
    """Return width and height of each object's image, (N, 2) px."""
    sizes = images.set_index("image_id")[["width", "height"]]
    return sizes.loc[annotations["image_id"]].to_numpy(np.float64)


def _reaches_out(annotations: pd.DataFrame, sizes: NDArray[np.float64]) -> NDArray[np.bool_]:
    corners = corners_of(annotations)
    outside: NDArray[np.bool_] = (corners < 0) | (corners > sizes[:, None])
    return np.asarray(outside.reshape(-1, 8).any(axis=1))


def _no_issues() -> pd.DataFrame:
    return make_table([], DATA_ISSUES)


def _issue_each(
    rows: pd.DataFrame, kind: str, describe: Callable[..., str], action: str
) -> pd.DataFrame:
    """Return a warning for each object."""
    issues = pd.DataFrame(
        {
            "file": rows["source_file"],
            "line": rows["source_line"],
            "image_id": rows["image_id"],
            "severity": "warning",
            "kind": kind,
            "message": [describe(row) for row in rows.itertuples()],
            "action": action,
        }
    )
    return make_table(issues, DATA_ISSUES)


def _issue_per_image(rows: pd.DataFrame, kind: str, what: str) -> pd.DataFrame:
    """Return a note for each image, with the number of objects and their first lines."""
    issues = []
    for image_id, group in rows.groupby("image_id", sort=True):
        lines = group["source_line"].tolist()
        listed = ", ".join(str(line) for line in lines[:_LISTED_LINES])
        more = f" and {len(lines) - _LISTED_LINES:,} more" if len(lines) > _LISTED_LINES else ""
        issues.append(
            {
                "file": group["source_file"].iloc[0],
                "line": lines[0],
                "image_id": image_id,
                "severity": "info",
                "kind": kind,
                "message": f"{what}: {len(lines):,} (line {listed}{more})",
                "action": "kept",
            }
        )
    return make_table(issues, DATA_ISSUES)
