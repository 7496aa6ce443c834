import base64
import io
import re

import numpy as np
import pandas as pd
import pytest

from obbflow.reporting import figures
from obbflow.reporting.pictures import picture
from obbflow.reporting.style import DARK, LIGHT, recolour, short_names

NAN = float("nan")


def texts(figure):
    """Return every text that the figure shows, after drawing it with warnings as errors."""
    figure.savefig(io.BytesIO(), format="svg")
    return [text.get_text() for text in figure.findobj(lambda part: hasattr(part, "get_text"))]


def class_table(names, ap50, ap50_95):
    return pd.DataFrame({"class_name": names, "ap50": ap50, "ap50_95": ap50_95})


def test_single_epoch_is_a_visible_point_at_a_whole_number(make_metrics):
    figure = figures.loss_curve(make_metrics(1))
    axes = figure.axes[0]
    line = axes.lines[0]
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([1.0], [2.0])
    assert line.get_marker() == "o"
    shown = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert shown == [1.0]


def test_curves_hold_the_values_of_the_table(make_metrics):
    figure = figures.training_curves(make_metrics(4))
    total, parts, scores = figure.axes
    assert total.lines[0].get_ydata().tolist() == [2.0, 1.0, 2 / 3, 0.5]
    assert [line.get_label() for line in parts.lines] == ["objectness", "box reg"]
    assert scores.lines[0].get_ydata().tolist() == pytest.approx([1 / 2, 2 / 3, 3 / 4, 4 / 5])


def test_missing_epochs_are_gaps_and_not_zeros(make_metrics):
    metrics = make_metrics(4)
    metrics.loc[[0, 2], "val/AP50"] = NAN
    line = figures.score_curve(metrics).axes[0].lines[0]
    assert line.get_xdata().tolist() == [2.0, 4.0]


def test_scores_that_were_never_computed_are_explained(make_metrics):
    shown = texts(figures.score_curve(make_metrics(2, scored=False)))
    assert any("compute_map_every_n_epochs" in text for text in shown)


def test_learning_rate_shows_the_range_of_groups_where_they_differ(make_metrics):
    metrics = make_metrics(3)
    assert len(figures.lr_curve(metrics).axes[0].collections) == 1
    same = metrics.assign(lr_min=metrics["lr"], lr_max=metrics["lr"])
    assert len(figures.lr_curve(same).axes[0].collections) == 0


def test_class_bars_are_sorted_and_say_what_is_missing():
    table = class_table(["a", "b", "c"], [0.2, NAN, 0.9], [0.1, NAN, 0.5])
    figure = figures.class_ap(table)
    widths = [bar.get_width() for bar in figure.axes[0].containers[0]]
    assert widths == [0.9, 0.2, 0.0]
    shown = texts(figure)
    assert {"0.90 / 0.50", "0.20 / 0.10", "n/a: no ground truth"} <= set(shown)


@pytest.mark.parametrize("n_classes", [1, 60])
def test_class_figures_suit_any_number_of_classes(n_classes):
    names = [f"class number {number}" for number in range(n_classes)]
    ap = np.linspace(1, 0.1, n_classes)
    figure = figures.class_ap(class_table(names, ap, ap / 2))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == names
    texts(figure)
    weights = pd.DataFrame({"class_name": names, "count": range(1, n_classes + 1), "weight": ap})
    balance = figures.class_balance(weights)
    assert [bar.get_width() for bar in balance.axes[0].containers[0]] == list(
        range(n_classes, 0, -1)
    )


def test_more_than_eight_curves_name_the_best_and_the_worst():
    names = [f"c{number:02d}" for number in range(12)]
    ap = np.linspace(1, 0.1, 12)
    curves = pd.DataFrame(
        {"class_name": names, "iou_threshold": 0.5, "recall": ap, "precision": 1.0}
    )
    figure = figures.precision_recall_curves(curves, class_table(names, ap, ap))
    labels = [text.get_text().split()[0] for text in figure.legends[0].get_texts()]
    assert sorted(labels) == ["c00", "c01", "c02", "c03", "c08", "c09", "c10", "c11"]
    assert len(figure.axes[0].lines) == 12


def test_curve_is_monotone_and_ends_where_recall_ends():
    curve = pd.DataFrame(
        {
            "class_name": "a",
            "iou_threshold": 0.5,
            "recall": [0.25, 0.5, 0.75],
            "precision": [0.5, 0.8, 0.6],
        }
    )
    figure = figures.precision_recall_curves(curve, class_table(["a"], [0.5], [0.2]))
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [0, 0.25, 0.5, 0.75, 0.75]
    assert line.get_ydata().tolist() == [0.8, 0.8, 0.8, 0.6, 0]


def test_classes_without_any_curve_are_explained():
    nothing = pd.DataFrame(columns=["class_name", "iou_threshold", "recall", "precision"])
    nothing = nothing.astype({"iou_threshold": float})
    figure = figures.precision_recall_curves(nothing, class_table(["a"], [NAN], [NAN]))
    assert any("No class has ground truth" in text for text in texts(figure))
    missed = figures.precision_recall_curves(nothing, class_table(["a"], [0.0], [0.0]))
    assert missed.axes[0].lines[0].get_marker() == "o"  # nothing detected: a point at the origin


def test_sizes_are_counted_once_an_object_without_ignore_regions_and_lookalikes():
    boxes = pd.DataFrame(
        {
            "class_name": ["a", "a", "b", "a", "a", "c"],
            "w": [16.0, 16.0, 64.0, 500.0, 12.0, 900.0],
            "h": [16.0, 17.0, 64.0, 500.0, 17.0, 9.0],
            "ignore": [False, False, False, True, False, False],
            "lookalike": [False, False, False, False, False, True],
            "iof": [1.0, 1.0, 1.0, 1.0, 0.75, 1.0],
            "object_id": [1, 2, 3, 4, 2, 5],
        }
    )
    figure = figures.object_sizes(boxes)
    shares = figure.axes[0].collections[0].get_array()
    assert shares.shape[0] == 2
    assert shares.sum(axis=1).tolist() == pytest.approx([1.0, 1.0])
    assert {"a (2)", "b (1)"} <= set(texts(figure))
    assert any("no object" in text for text in texts(figures.object_sizes(boxes.head(0))))


@pytest.mark.parametrize("name", ["$x_1$", "_hidden", "a$b", "avion_à_réaction", "n" * 70])
def test_any_class_name_is_shown_as_text(name):
    figure = figures.precision_recall_curves(
        pd.DataFrame(
            {"class_name": [name], "iou_threshold": 0.5, "recall": [0.5], "precision": [1.0]}
        ),
        class_table([name], [0.5], [0.2]),
    )
    label = figure.legends[0].get_texts()[0].get_text()
    texts(figure)
    assert label.replace("\\$", "$").strip().startswith(name[:10])
    assert len(label) < 40


def test_middle_of_long_names_is_left_out():
    assert short_names(["x" * 30 + "-north"], limit=16) == ["x" * 10 + "…north"]


def test_dark_figures_keep_no_light_colour(make_metrics):
    shown = picture(figures.training_curves(make_metrics(2)), "Losses.")
    light, dark = (
        base64.b64decode(uri.split(",")[1]).decode() for uri in (shown.light, shown.dark)
    )
    used = set(re.findall("#[0-9a-f]{6}", light))
    assert used <= {LIGHT.background, LIGHT.text, LIGHT.muted, LIGHT.grid, *LIGHT.palette}
    assert {LIGHT.background, LIGHT.text, LIGHT.palette[0]} <= used
    assert set(re.findall("#[0-9a-f]{6}", dark)) == {recolour(colour) for colour in used}
    assert (recolour(LIGHT.background), recolour(LIGHT.palette[5])) == (
        DARK.background,
        DARK.palette[5],
    )
