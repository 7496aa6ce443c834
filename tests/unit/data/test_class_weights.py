import math

import pytest

from obbflow.config import LossSection
from obbflow.data.class_weights import class_weight_vector, weigh_classes
from obbflow.errors import ConfigError, DataError
from obbflow.tables import CLASS_WEIGHTS, check_table

COUNTS = {"car": 980, "ship": 20, "helicopter": 1}
CLASS_MAP = {"car": 1, "helicopter": 2, "ship": 3}


def weigh(counts=COUNTS, class_map=CLASS_MAP, method="sqrt", beta=0.9999, **overrides):
    return weigh_classes(counts, class_map, method=method, beta=beta, **overrides)


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("sqrt", [1, math.sqrt(980), math.sqrt(49)]),
        ("inv_freq", [1001 / (3 * 980), 1001 / 3, 1001 / 60]),
        ("effective_num", [0.01 / (1 - 0.99**980), 1, 0.01 / (1 - 0.99**20)]),
        ("log_inv_freq", [math.log(1001 / 980 + 1), math.log(1002), math.log(1001 / 20 + 1)]),
    ],
)
def test_raw_weights_follow_the_formula_in_the_order_of_ids(method, raw):
    table = weigh(method=method, beta=0.99)
    check_table(table, CLASS_WEIGHTS, "class_weights")
    assert table["class_name"].tolist() == ["car", "helicopter", "ship"]
    assert table["class_id"].tolist() == [1, 2, 3]
    assert table["count"].tolist() == [980, 1, 20]
    assert table["share"].tolist() == pytest.approx([980 / 1001, 1 / 1001, 20 / 1001])
    assert table["raw"].tolist() == pytest.approx(raw, rel=1e-12)
    mean = sum(raw) / 3
    assert table["normalised"].tolist() == pytest.approx([value / mean for value in raw])
    assert table["normalised"].mean() == pytest.approx(1)


@pytest.mark.parametrize("method", ["sqrt", "inv_freq", "effective_num", "log_inv_freq"])
def test_weights_are_clipped_and_rarer_classes_weigh_no_less(method):
    weights = weigh(method=method).set_index("class_name")["weight"]
    assert 0.3 <= weights["car"] <= weights["ship"] <= weights["helicopter"] <= 3


def test_clipping_keeps_what_it_was_before():
    table = weigh(method="inv_freq").set_index("class_name")
    assert table.loc["car", "normalised"] < 0.3
    assert table.loc["car", "clipped"] == table.loc["car", "weight"] == 0.3


def test_beta_close_to_1_loses_no_digits():
    # 1 - beta^n is n (1 - beta) to first order, so weights are those of inverse frequency.
    table = weigh({"a": 1, "b": 2}, {"a": 1, "b": 2}, method="effective_num", beta=1 - 1e-15)
    assert table["normalised"].tolist() == pytest.approx([4 / 3, 2 / 3], rel=1e-9)


def test_single_class_weighs_1():
    assert weigh({"a": 7}, {"a": 1})["weight"].tolist() == [1]


def test_override_replaces_the_clipped_weight():
    table = weigh(overrides={"ship": 9.5}).set_index("class_name")
    assert table["weight"].to_dict() == {
        "car": table.loc["car", "clipped"],
        "helicopter": table.loc["helicopter", "clipped"],
        "ship": 9.5,
    }
    assert table["override"].isna().tolist() == [True, True, False]


def test_override_of_an_unknown_class_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"there is no class 'shp', did you mean 'ship'\?"):
        weigh(overrides={"shp": 2.0})


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_override_that_is_no_weight_is_refused(value):
    with pytest.raises(ConfigError, match="the weight of 'ship' must be a number of 0 or more"):
        weigh(overrides={"ship": value})


@pytest.mark.parametrize(("counts", "class_map"), [({"a": 0}, {"a": 1}), ({}, {"a": 1}), ({}, {})])
def test_class_without_objects_is_a_wrong_call(counts, class_map):
    with pytest.raises(ValueError, match="every class needs an object"):
        weigh(counts, class_map)


@pytest.mark.parametrize(
    ("values", "background"),
    [
        ({}, 1.0),
        ({"background_weight": 0.25}, 0.25),
        ({"loss_type": "focal_weighted"}, 1.0),
    ],
)
def test_vector_starts_with_the_background(values, background):
    class_map = {"a": 1, "b": 2}
    shuffled = weigh({"b": 4, "a": 1}, class_map).iloc[::-1]
    vector = class_weight_vector(shuffled, class_map, LossSection(**values))
    assert vector == pytest.approx([background, 4 / 3, 2 / 3])


@pytest.mark.parametrize("loss_type", ["cross_entropy", "focal", "none"])
def test_losses_that_do_not_weigh_classes_get_no_vector(loss_type):
    table = weigh({"a": 1}, {"a": 1})
    assert class_weight_vector(table, {"a": 1}, LossSection(loss_type=loss_type)) is None


def test_weights_of_another_class_map_are_refused():
    table = weigh({"a": 1}, {"a": 1})
    with pytest.raises(DataError, match="no weight for b, c; it is of another class map"):
        class_weight_vector(table, {"a": 1, "b": 2, "c": 3}, LossSection())
