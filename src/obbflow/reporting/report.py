"""The report of a run: one HTML page that needs nothing beside itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image
from torch import Tensor

from obbflow.config import EvaluationSection
from obbflow.data.statistics import count_on_tiles
from obbflow.evaluation import evaluate_detections
from obbflow.reporting import figures
from obbflow.reporting.drawing import draw_tile, marks_of_tile, pick_tiles
from obbflow.reporting.pictures import Picture, jpeg_uri, picture
from obbflow.reporting.wording import (
    describe_facts,
    describe_findings,
    format_number,
    format_sections,
)

_SHOWN_ISSUES = 20
_FEW_ROWS = 30  # more classes than this fold their figures

_FIGURE_TEXTS = {
    "loss_curve": ("Total loss over the epochs.", "Mean loss of each epoch."),
    "loss_parts": (
        "Parts of the training loss over the epochs.",
        "Region proposals (objectness, rpn box reg) and boxes (classifier, box reg).",
    ),
    "score_curve": (
        "Validation AP50, AP75 and AP50:95 over the epochs.",
        "Tile level, exact rotated IoU.",
    ),
    "lr_curve": ("Learning rate over the epochs.", "At the last step of each epoch."),
    "class_ap": ("AP50 and AP50:95 of each class as bars.", "Area form; the same as in the table."),
    "precision_recall_curves": (
        "Precision against recall for each class.",
        "Precision that can be had at each recall. Solid: best classes; dashed: the others.",
    ),
    "class_balance": (
        "Number of training objects and loss weight of each class.",
        "Rare classes weigh more in the loss.",
    ),
    "object_sizes": (
        "Histogram of object sizes for each class.",
        "Training and validation; an object in several tiles counts once.",
    ),
}


@dataclass(frozen=True)
class ReportData:
    """Everything that a report shows, by the names of the catalog.

    Attributes:
        training_metrics: May have any columns beside ``epoch``.
        class_names: In the order of their ids.
        tile_ids: The validation tiles that were looked at.
        ground_truth: ``tables.GROUND_TRUTH`` of these; ``image_id`` is the tile.
        tile_image: Takes a place in ``tile_ids``, returns (3, H, W) uint8 RGB.
    """

    run_record: Mapping[str, Any]
    training_metrics: pd.DataFrame
    final_metrics: Mapping[str, Any]
    class_metrics: pd.DataFrame
    class_weights: pd.DataFrame
    precision_recall: pd.DataFrame
    detections: pd.DataFrame
    tile_index: pd.DataFrame
    tile_annotations: pd.DataFrame
    data_issues: pd.DataFrame
    class_names: Sequence[str]
    tile_ids: Sequence[str]
    ground_truth: pd.DataFrame
    tile_image: Callable[[int], Tensor]
    evaluation: EvaluationSection


@dataclass(frozen=True)
class ShownTile:
    """A tile of the report: heading, image as a data URI, text for it, and numbers in words."""

    role: str
    uri: str
    alt: str
    caption: str


def render_report(data: ReportData) -> str:
    """Return the report as one HTML page.

    Images are data URIs, styles are inline, there is no script, and a content security policy
    forbids the browser any request. All text is escaped.

    Args:
        data: The tables of a run; one epoch, one tile and one class are enough, and without
            validation the page says why there are no numbers.
    """
    # Jinja's own Markup is not used anywhere: names such as "<b>ship</b>" come out as text.
    environment = Environment(
        loader=PackageLoader("obbflow.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = format_number
    issues = _fill_texts(data.data_issues)
    return environment.get_template("report.html.j2").render(
        title=_title(data.run_record),
        metrics=data.final_metrics,
        facts=describe_facts(data.run_record, data.tile_index, data.class_weights),
        findings=describe_findings(data.final_metrics, data.class_metrics, data.run_record),
        classes=_class_rows(data.class_metrics, data.class_weights),
        training_figures=_draw(data, ("loss_curve", "score_curve", "loss_parts", "lr_curve")),
        class_figures=_draw(data, ("class_ap", "precision_recall_curves")),
        object_counts=_rows(count_on_tiles(data.tile_index, data.tile_annotations)),
        data_figures=_draw(data, ("class_balance", "object_sizes")),
        fold_figures=len(data.class_metrics) > _FEW_ROWS,
        tiles=_draw_tiles(data),
        issues=_rows(issues.head(_SHOWN_ISSUES)),
        issue_kinds=_rows(_count_kinds(issues)),
        n_issues=len(issues),
        settings=format_sections(data.run_record.get("configuration") or {}),
        environment=format_sections(_environment(data.run_record)),
        version=data.run_record.get("package_version"),
    )


def _title(record: Mapping[str, Any]) -> str:
    """Return the name of the data set: its folder, or that of the demo."""
    dataset = (record.get("configuration") or {}).get("dataset") or {}
    root = dataset.get("data_root")
    if not root:
        return "Demo scenes" if dataset.get("format") == "synthetic" else "Oriented objects"
    return str(root).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _class_rows(class_metrics: pd.DataFrame, class_weights: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the class table, best AP50 first."""
    table = class_metrics.merge(
        class_weights[["class_name", "count", "weight"]], on="class_name", how="left"
    ).sort_values(["ap50", "class_name"], ascending=[False, True], na_position="last")
    return _rows(table)


def _draw(data: ReportData, names: Sequence[str]) -> list[Picture]:
    """Return the named figures."""
    metrics, classes = data.training_metrics, data.class_metrics
    draw = {
        "loss_curve": partial(figures.loss_curve, metrics),
        "loss_parts": partial(figures.loss_parts, metrics),
        "score_curve": partial(figures.score_curve, metrics),
        "lr_curve": partial(figures.lr_curve, metrics),
        "class_ap": partial(figures.class_ap, classes),
        "precision_recall_curves": partial(
            figures.precision_recall_curves, data.precision_recall, classes, 0.5
        ),
        "class_balance": partial(figures.class_balance, data.class_weights),
        "object_sizes": partial(figures.object_sizes, data.tile_annotations),
    }
    return [picture(draw[name](), *_FIGURE_TEXTS[name]) for name in names]


def _draw_tiles(data: ReportData) -> list[ShownTile]:
    """Return the best, median and worst validation tile with everything drawn on them."""
    tile_ids = pd.Series(list(data.tile_ids), dtype="str")
    truth = data.ground_truth
    scores = data.evaluation.score_threshold, data.evaluation.iou_threshold
    result = evaluate_detections(data.detections, truth, data.class_names, scores[1:])
    shown = []
    for tile in pick_tiles(data.detections, truth, result, tile_ids, *scores):
        marks = marks_of_tile(tile.tile_id, data.detections, truth, result, *scores)
        pixels = data.tile_image(list(data.tile_ids).index(tile.tile_id))
        image = draw_tile(Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy()), marks)
        counts = (
            f"{tile.n_hit:,} of {tile.n_gt:,} objects found, "
            f"{tile.n_gt - tile.n_hit:,} missed, {tile.n_det - tile.n_hit:,} false positives"
        )
        alt = f"Validation tile {tile.tile_id} with ground truth and detections: {counts}."
        caption = f"F1 {tile.f1:.2f}: {counts}. Tile {tile.tile_id}"
        shown.append(ShownTile(tile.role, jpeg_uri(image), alt, caption))
    return shown


def _fill_texts(issues: pd.DataFrame) -> pd.DataFrame:
    """Return the issues with "" for texts that are missing."""
    texts = ["file", "image_id", "severity", "kind", "message", "action"]
    return issues.assign(**{name: issues[name].astype(object).fillna("") for name in texts})


def _count_kinds(issues: pd.DataFrame) -> pd.DataFrame:
    """Return how often each kind of issue occurs and where first, the most frequent first."""
    line = issues["line"].map(lambda number: "" if pd.isna(number) else f":{number}")
    places = issues.assign(first=issues["file"] + line.astype(object))
    kinds = places.groupby(["severity", "kind", "action"])["first"].agg(["size", "first"])
    counts = kinds.rename(columns={"size": "count"}).reset_index()
    return counts.sort_values("count", ascending=False, kind="stable")


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as dictionaries, None for what is missing."""
    known = table.astype(object).where(table.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in known.to_dict("records")]


def _environment(record: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return machine, libraries and code of a run as sections."""
    names = (
        "python",
        "package_version",
        "host",
        "platform",
        "command_line",
        "working_directory",
        "configuration_hash",
        "data_hash",
        "resumed_from",
    )
    return {
        "run": {name: record[name] for name in names if name in record},
        **{name: record[name] for name in ("git", "devices", "libraries") if record.get(name)},
    }
