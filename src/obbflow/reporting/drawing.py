"""Tiles with their ground truth and detections drawn on them.

Two colours: orange is ground truth, blue is a detection. What went well is a thin outline; a missed
object and a false positive are filled and dashed. Ignore regions are grey.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import torch
from PIL import Image, ImageDraw, ImageFont

from obbflow.evaluation import EvaluationResult, count_hits, score_tiles
from obbflow.geometry import rbox_to_qbox
from obbflow.tables import RBOX

TRUTH_COLOUR = (230, 159, 0)
DETECTION_COLOUR = (86, 180, 233)
IGNORE_COLOUR = (190, 190, 190)

_LONG_SIDE = 960  # px: smaller tiles are enlarged by a whole factor, so that lines stay fine
_FONT_SIZE = 18
_DASH = 7  # px, of a dash and of the gap after it
_FILL = 70  # opacity of 255

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]


@dataclass(frozen=True)
class PickedTile:
    """A validation tile chosen for the report: why, its id, and its counts and F1."""

    role: str
    tile_id: str
    n_gt: int
    n_hit: int
    n_det: int
    f1: float


@dataclass(frozen=True)
class Mark:
    """A box to draw: corners in px of the tile, colour, whether it marks an error, and a label."""

    corners: tuple[Point, ...]
    colour: tuple[int, int, int]
    is_error: bool
    label: str


def pick_tiles(
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    result: EvaluationResult,
    tile_ids: pd.Series,
    score_threshold: float,
    iou_threshold: float,
) -> list[PickedTile]:
    """Return the best, the median and the worst tile by F1 over all classes.

    Tiles without objects and without detections have no F1 and are not picked. Of tiles with the
    same F1, the one with the most objects is taken for best and worst, for it shows most.

    Args:
        detections: ``image_id`` is the tile.
        ground_truth: As ``detections``.
        result: Of ``evaluate_detections`` on these tables.
        tile_ids: All tiles that were looked at.
        score_threshold: Detections with this score or more count.
        iou_threshold: From this IoU on, a detection matches an object.

    Returns:
        Three tiles; fewer when fewer have an F1, and none twice.
    """
    scored = score_tiles(
        detections, ground_truth, result, tile_ids, score_threshold, iou_threshold
    ).dropna(subset=["f1"])
    ranked = scored.sort_values(["f1", "n_gt", "image_id"], ascending=[False, False, True])
    best, others = ranked.head(1), ranked.iloc[1:]
    worst = others.sort_values(["f1", "n_gt", "image_id"], ascending=[True, False, True]).head(1)
    between = others.drop(index=worst.index)
    median = between.iloc[(len(between) - 1) // 2 :].head(1)
    if len(ranked) < 2:
        return _picked("The only tile with objects or detections", best)
    return [
        *_picked("Best tile", best),
        *_picked("Median tile", median),
        *_picked("Worst tile", worst),
    ]


def marks_of_tile(
    tile_id: str,
    detections: pd.DataFrame,
    ground_truth: pd.DataFrame,
    result: EvaluationResult,
    score_threshold: float,
    iou_threshold: float,
) -> list[Mark]:
    """Return the boxes to draw on a tile, those that matter most last.

    The arguments are those of ``pick_tiles``. Detections below the score threshold are left out;
    a found object is labelled by its detection alone.
    """
    judged = count_hits(detections, result, score_threshold, iou_threshold)
    found = set(judged.loc[judged["is_hit"], "gt_row"])
    objects = ground_truth.reset_index(drop=True)
    objects = objects[objects["image_id"] == tile_id]
    marks = []
    for row, corners in zip(objects.index, _corners(objects), strict=True):
        name = str(objects.at[row, "class_name"])
        if objects.at[row, "difficult"]:
            marks.append(Mark(corners, IGNORE_COLOUR, is_error=False, label=""))
        elif row in found:
            marks.append(Mark(corners, TRUTH_COLOUR, is_error=False, label=""))
        else:
            marks.append(Mark(corners, TRUTH_COLOUR, is_error=True, label=f"missed: {name}"))
    shown = judged.assign(score=detections["score"].to_numpy())
    shown = shown[(shown["image_id"] == tile_id) & (shown["score"] >= score_threshold)]
    boxes = detections.reset_index(drop=True).loc[shown.index]
    for corners, row in zip(_corners(boxes), shown.to_dict("records"), strict=True):
        is_error = bool(row["is_miss"])
        label = f"{'wrong: ' if is_error else ''}{row['class_name']} {row['score']:.2f}"
        colour = DETECTION_COLOUR if is_error or row["is_hit"] else IGNORE_COLOUR
        marks.append(Mark(corners, colour, is_error=is_error, label=label))
    return sorted(marks, key=lambda mark: mark.is_error)


def draw_tile(tile: Image.Image, marks: Sequence[Mark]) -> Image.Image:
    """Return the tile with boxes and labels, enlarged when it is small.

    Labels of errors are placed first. A label that would cover another one is left out, and so is
    that of a right detection where it would cover a box.

    Args:
        tile: RGB.
        marks: Boxes in px of ``tile``.
    """
    factor = max(1, round(_LONG_SIDE / max(tile.size)))
    canvas = tile.convert("RGB").resize((tile.width * factor, tile.height * factor))
    draw = ImageDraw.Draw(canvas, "RGBA")
    scaled = [
        replace(mark, corners=tuple((x * factor, y * factor) for x, y in mark.corners))
        for mark in marks
    ]
    for mark in scaled:
        _draw_box(draw, mark)
    labels: list[Rectangle] = []
    boxes = {id(mark): _surround(mark.corners) for mark in scaled}
    for mark in sorted(scaled, key=lambda mark: not mark.is_error):
        others = [box for key, box in boxes.items() if key != id(mark) and not mark.is_error]
        place = _place_label(draw, mark, canvas.size, [*labels, *others])
        if place:
            labels.append(place)
    return canvas


def _picked(role: str, rows: pd.DataFrame) -> list[PickedTile]:
    """Return the rows of ``score_tiles`` as picked tiles."""
    return [
        PickedTile(
            role=role,
            tile_id=str(row["image_id"]),
            n_gt=int(row["n_gt"]),
            n_hit=int(row["n_hit"]),
            n_det=int(row["n_det"]),
            f1=float(row["f1"]),
        )
        for row in rows.to_dict("records")
    ]


def _corners(table: pd.DataFrame) -> Iterator[tuple[Point, ...]]:
    """Yield the four corners of each row."""
    rboxes = torch.from_numpy(table[list(RBOX)].to_numpy("float64").reshape(-1, 5).copy())
    for x1, y1, x2, y2, x3, y3, x4, y4 in rbox_to_qbox(rboxes).tolist():
        yield (x1, y1), (x2, y2), (x3, y3), (x4, y4)


def _draw_box(draw: ImageDraw.ImageDraw, mark: Mark) -> None:
    """Draw one outline on a dark rim, which keeps it visible on any ground."""
    outline = [*mark.corners, mark.corners[0]]
    if mark.is_error:
        draw.polygon(mark.corners, fill=(*mark.colour, _FILL))
        draw.line(outline, fill=(0, 0, 0, 160), width=4)
        for start, end in _dashes(outline):
            draw.line([start, end], fill=mark.colour, width=3)
        return
    draw.line(outline, fill=(0, 0, 0, 110), width=4)
    draw.line(outline, fill=mark.colour, width=2)


def _dashes(outline: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    """Yield the dashes along a line of points."""
    for (x1, y1), (x2, y2) in pairwise(outline):
        length = max(((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 1e-9)
        position = 0.0
        while position < length:
            start, end = position / length, min(position + _DASH, length) / length
            yield (
                (x1 + (x2 - x1) * start, y1 + (y2 - y1) * start),
                (x1 + (x2 - x1) * end, y1 + (y2 - y1) * end),
            )
            position += 2 * _DASH


def _place_label(
    draw: ImageDraw.ImageDraw, mark: Mark, size: tuple[int, int], taken: Sequence[Rectangle]
) -> Rectangle | None:
    """Draw the label above or below its box where it is free; return where, None if nowhere."""
    if not mark.label:
        return None
    text = mark.label if len(mark.label) <= 32 else f"{mark.label[:22]}…{mark.label[-9:]}"
    font = _font()
    width, height = font.getlength(text) + 6, _FONT_SIZE + 4
    x1, y1, _, y2 = _surround(mark.corners)
    left = min(max(x1, 0), max(size[0] - width, 0))
    for top in (y1 - height - 2, y2 + 2):
        spot = (left, top, left + width, top + height)
        if top >= 0 and spot[3] <= size[1] and not any(_overlap(spot, other) for other in taken):
            draw.rectangle(spot, fill=(16, 22, 28, 215))
            draw.text((left + 3, top + 1), text, font=font, fill=mark.colour)
            return spot
    return None


def _surround(corners: Sequence[Point]) -> Rectangle:
    """Return the level rectangle round some points."""
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def _overlap(a: Rectangle, b: Rectangle) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _font() -> ImageFont.FreeTypeFont:
    """Return the font that matplotlib brings along, which has most alphabets of Europe."""
    path = Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(path, _FONT_SIZE)
