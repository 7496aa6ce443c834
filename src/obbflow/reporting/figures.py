"""Figures of a run, drawn from its tables. They suit one epoch and one class as well as many."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter

from obbflow.reporting.style import LIGHT, draw_figure, plain_text, say, short_names
from obbflow.tables import is_object

_WIDTH = 5.6  # inches: half of a report's width
_HEIGHT = 3.3
_MARKED_EPOCHS = 40  # up to this many, every epoch has a marker
_NAMED_CURVES = 8
_SHADES = 32
_SCORE_COLUMNS = {
    "val/AP50": "AP50",
    "val/AP75": "AP75",
    "val/AP50_95": "AP50:95",
}


def training_curves(training_metrics: pd.DataFrame) -> Figure:
    """Return total loss, parts of the loss and validation scores over the epochs, side by side.

    Args:
        training_metrics: A row an epoch: ``epoch``, ``train/*``, ``val/*``.
    """
    with draw_figure(2.6 * _WIDTH, _HEIGHT) as figure:
        left, middle, right = figure.subplots(1, 3)
        _draw_total_loss(left, training_metrics)
        _draw_loss_parts(middle, training_metrics)
        _draw_scores(right, training_metrics)
    return figure


def loss_curve(training_metrics: pd.DataFrame) -> Figure:
    """Return the total loss over the epochs, see ``training_curves``."""
    with draw_figure(_WIDTH, _HEIGHT) as figure:
        _draw_total_loss(figure.subplots(), training_metrics)
    return figure


def loss_parts(training_metrics: pd.DataFrame) -> Figure:
    """Return the parts of the training loss over the epochs, see ``training_curves``."""
    with draw_figure(_WIDTH, _HEIGHT) as figure:
        _draw_loss_parts(figure.subplots(), training_metrics)
    return figure


def score_curve(training_metrics: pd.DataFrame) -> Figure:
    """Return the validation scores over the epochs, see ``training_curves``."""
    with draw_figure(_WIDTH, _HEIGHT) as figure:
        _draw_scores(figure.subplots(), training_metrics)
    return figure


def lr_curve(training_metrics: pd.DataFrame) -> Figure:
    """Return the learning rate at the end of each epoch, with its range over parameter groups.

    Args:
        training_metrics: A row an epoch: ``epoch``, ``lr``; ``lr_min`` and ``lr_max`` if known.
    """
    with draw_figure(_WIDTH, _HEIGHT) as figure:
        axes = figure.subplots()
        axes.set_title("Learning rate")
        if _plot_epochs(axes, training_metrics, {"lr": "first group"}):
            groups = [name in training_metrics for name in ("lr_min", "lr_max")]
            if all(groups) and (training_metrics["lr_min"] < training_metrics["lr_max"]).any():
                axes.fill_between(
                    training_metrics["epoch"].astype(float),
                    training_metrics["lr_min"].astype(float),
                    training_metrics["lr_max"].astype(float),
                    color=LIGHT.palette[0],
                    alpha=0.2,
                    linewidth=0,
                    label="all groups",
                )
                axes.legend()
            axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4))
            axes.set_ylim(bottom=0)
        else:
            say(axes, "No learning rate was recorded.")
    return figure


def class_ap(class_metrics: pd.DataFrame) -> Figure:
    """Return bars of AP50 and AP50:95 for each class, best first.

    Args:
        class_metrics: ``tables.CLASS_METRICS``; a missing AP is said, not drawn as 0.
    """
    table = class_metrics.sort_values(
        ["ap50", "ap50_95", "class_name"], ascending=[False, False, True], na_position="last"
    )
    with draw_figure(_WIDTH, _rows_height(len(table))) as figure:
        axes = figure.subplots()
        axes.set_title("Average precision by class")
        if table.empty:
            say(axes, "There is no class.")
            return figure
        rows = np.arange(len(table))
        axes.barh(rows, table["ap50"].fillna(0), 0.72, color=LIGHT.palette[5], label="AP50")
        axes.barh(rows, table["ap50_95"].fillna(0), 0.34, color=LIGHT.palette[0], label="AP50:95")
        for row, (ap50, ap50_95) in enumerate(zip(table["ap50"], table["ap50_95"], strict=True)):
            known = np.isfinite(ap50)
            text = f"{ap50:.2f} / {ap50_95:.2f}" if known else "n/a: no ground truth"
            axes.text((ap50 if known else 0) + 0.012, row, text, va="center", fontsize=7.5)
        _name_rows(axes, table["class_name"].tolist())
        axes.set_xlim(0, 1.2)
        axes.set_xticks(np.linspace(0, 1, 6))
        figure.legend(loc="outside lower right", ncols=2)
    return figure


def precision_recall_curves(
    precision_recall: pd.DataFrame, class_metrics: pd.DataFrame, iou_threshold: float = 0.5
) -> Figure:
    """Return the precision-recall curve of each class: the monotone one that "area" AP integrates.

    With more than eight classes, the four with the best and the four with the worst AP50 are
    named and coloured, the others are grey.

    Args:
        precision_recall: ``class_name``, ``iou_threshold``, ``recall``, ``precision``, best score
            first within a class.
        class_metrics: ``tables.CLASS_METRICS``, for the order of the classes.
        iou_threshold: Which curves.
    """
    curves = precision_recall[np.isclose(precision_recall["iou_threshold"], iou_threshold)]
    ranked = class_metrics.dropna(subset=["ap50"]).sort_values(
        ["ap50", "class_name"], ascending=[False, True]
    )
    names = ranked["class_name"].tolist()
    named = names
    if len(names) > _NAMED_CURVES:
        named = names[: _NAMED_CURVES // 2] + names[-_NAMED_CURVES // 2 :]
    with draw_figure(_WIDTH, _HEIGHT + 0.5 if names else 2.0) as figure:
        axes = figure.subplots()
        axes.set_title(f"Precision and recall at IoU {iou_threshold:g}")
        if not names:
            say(axes, "No class has ground truth: there is no curve.")
            return figure
        shown = dict(zip(named, short_names(named, 20), strict=True))
        for name in sorted(names, key=shown.__contains__):
            curve = curves[curves["class_name"] == name]
            style = {"color": LIGHT.grid, "linewidth": 1.2}
            if name in shown:
                place = named.index(name)
                ap = ranked.loc[ranked["class_name"] == name, "ap50"].iloc[0]
                style = {
                    "color": LIGHT.palette[place % len(LIGHT.palette)],
                    "linestyle": "-" if place < _NAMED_CURVES // 2 else (0, (4, 1.2)),
                    "label": f"{shown[name]}  {ap:.2f}" if iou_threshold == 0.5 else shown[name],
                }
            _plot_curve(axes, curve, style)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.04), xlabel="recall", ylabel="precision")
        figure.legend(loc="outside right upper")
    return figure


def class_balance(class_weights: pd.DataFrame) -> Figure:
    """Return the number of training objects and the loss weight of each class.

    Args:
        class_weights: ``tables.CLASS_WEIGHTS``.
    """
    table = class_weights.sort_values(["count", "class_name"], ascending=[False, True])
    with draw_figure(_WIDTH, _rows_height(len(table))) as figure:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
        left.set_title("Training objects")
        right.set_title("Weight in the loss")
        rows = np.arange(len(table))
        left.barh(rows, table["count"], 0.6, color=LIGHT.palette[0])
        for row, count in enumerate(table["count"]):
            left.annotate(
                f"{count:,}", (count, row), (3, 0), textcoords="offset points", va="center",
                fontsize=7.5,
            )  # fmt: skip
        left.set_xscale("symlog", linthresh=1)
        left.set_xlim(0, max(10.0, float(table["count"].max()) * 6))
        left.xaxis.set_major_formatter(EngFormatter(sep=""))
        right.axvline(1.0, color=LIGHT.muted, linewidth=1)
        right.plot(table["weight"], rows, "o", color=LIGHT.palette[1], markersize=5)
        right.tick_params(axis="y", length=0)
        right.set_xlim(0, max(2.0, float(table["weight"].max()) * 1.1))
        _name_rows(left, table["class_name"].tolist())
    return figure


def object_sizes(tile_annotations: pd.DataFrame) -> Figure:
    """Return a histogram of object sizes for each class, one row of shades a class.

    Size is the root of the box's area, so a box of 40 x 10 px counts as 20 px.

    Args:
        tile_annotations: ``tables.TILE_ANNOTATIONS``; ignore regions and look-alikes are left out,
            and an object in several tiles counts once, where most of it is visible.
    """
    objects = tile_annotations[is_object(tile_annotations)]
    objects = objects.sort_values("iof", kind="stable").drop_duplicates("object_id", keep="last")
    sizes = np.sqrt(objects["w"] * objects["h"])
    names = sorted(objects["class_name"].unique())
    with draw_figure(_WIDTH, _rows_height(len(names))) as figure:
        axes = figure.subplots()
        axes.set_title("Object size by class")
        if not names:
            say(axes, "There is no object.")
            return figure
        low, high = np.floor(np.log2(max(sizes.min(), 1))), np.ceil(np.log2(max(sizes.max(), 2)))
        high = max(high, low + 1)
        edges = 2 ** np.arange(low, high + 0.25, 0.25)
        counts = np.stack(
            [
                np.histogram(sizes[objects["class_name"] == name].clip(1), bins=edges)[0]
                for name in names
            ]
        )
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        shades = LinearSegmentedColormap.from_list(
            "share", [to_rgba(LIGHT.palette[0], share) for share in (0, 1)], _SHADES
        )
        mesh = axes.pcolormesh(edges, np.arange(len(names) + 1) - 0.5, shares, cmap=shades, vmin=0)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("root of the area, px in the tile")
        axes.grid(visible=False)
        _name_rows(axes, [f"{name} ({n:,})" for name, n in zip(names, counts.sum(1), strict=True)])
        bar = figure.colorbar(mesh, ax=axes, pad=0.02, format=PercentFormatter(1, decimals=0))
        bar.set_label("share of the class")
        bar.outline.set_visible(False)
    return figure


def _draw_total_loss(axes: Axes, metrics: pd.DataFrame) -> None:
    axes.set_title("Loss")
    lines = {"train/total_loss": "training", "val/total_loss": "validation"}
    if _plot_epochs(axes, metrics, lines):
        axes.set_ylim(bottom=0)
        axes.legend()
    else:
        say(axes, "No loss was recorded.")


def _draw_loss_parts(axes: Axes, metrics: pd.DataFrame) -> None:
    axes.set_title("Parts of the training loss")
    lines = {
        name: name.removeprefix("train/").removeprefix("loss_").replace("_", " ")
        for name in metrics.columns
        if name.startswith("train/loss_")
    }
    if _plot_epochs(axes, metrics, lines):
        axes.set_ylim(bottom=0)
        axes.legend()
    else:
        say(axes, "No parts of the loss were recorded.")


def _draw_scores(axes: Axes, metrics: pd.DataFrame) -> None:
    axes.set_title("Validation score by epoch")
    if _plot_epochs(axes, metrics, _SCORE_COLUMNS):
        axes.set_ylim(-0.02, 1.02)
        axes.legend()
    else:
        say(
            axes,
            "Not computed during training:\nevaluation.compute_map_every_n_epochs is 0,\nor there "
            "was nothing to score.",
        )


def _plot_epochs(axes: Axes, metrics: pd.DataFrame, lines: dict[str, str]) -> bool:
    """Draw columns over the epochs; return whether there was a value to draw."""
    drawn = False
    colours = LIGHT.palette
    for place, (column, label) in enumerate(lines.items()):
        if column not in metrics:
            continue
        points = metrics[["epoch", column]].dropna().astype(float)
        if points.empty:
            continue
        marker = "o" if len(points) <= _MARKED_EPOCHS else ""
        axes.plot(
            points["epoch"],
            points[column],
            marker=marker,
            color=colours[place % len(colours)],
            label=plain_text(label),
        )
        drawn = True
    if drawn:
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        last = float(metrics["epoch"].max())
        axes.set_xlim(0.5 if last < _MARKED_EPOCHS else 0, last + 0.5)
    return drawn


def _plot_curve(axes: Axes, curve: pd.DataFrame, style: dict[str, object]) -> None:
    """Draw one monotone precision-recall curve, down to 0 where recall ends."""
    if curve.empty:  # nothing was detected
        axes.plot([0], [0], marker="o", **style)  # type: ignore[arg-type]
        return
    precision = curve["precision"].to_numpy("float64")[::-1]
    envelope = np.maximum.accumulate(precision)[::-1]
    recall = curve["recall"].to_numpy("float64")
    axes.plot(
        np.concatenate([[0], recall, recall[-1:]]),
        np.concatenate([envelope[:1], envelope, [0]]),
        drawstyle="steps-pre",
        **style,  # type: ignore[arg-type]
    )


def _rows_height(n_rows: int) -> float:
    """Return the height in inches of a figure with one row a class."""
    return max(2.0, 1.1 + n_rows * (0.3 if n_rows <= 12 else 0.2))


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label rows of classes, the first on top."""
    axes.set_yticks(range(len(names)), short_names(names))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
