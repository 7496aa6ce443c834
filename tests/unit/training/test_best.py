import pytest

from obbflow.config import CheckpointSection, EvaluationSection
from obbflow.errors import ConfigError
from obbflow.training.best import BestRule, choose_best_rule

SCORED = EvaluationSection(compute_map_every_n_epochs=1)
UNSCORED = EvaluationSection(compute_map_every_n_epochs=0)


def test_map_decides_where_it_is_computed():
    rule = choose_best_rule(CheckpointSection(), SCORED, ["ship"])
    assert rule == BestRule("val/mAP", higher_is_better=True)


@pytest.mark.parametrize(
    ("evaluation", "classes", "reason"),
    [
        (UNSCORED, ["ship"], "compute_map_every_n_epochs is 0"),
        (SCORED, None, "there are no validation tiles"),
    ],
)
def test_without_map_the_training_loss_decides_and_the_log_says_why(
    evaluation, classes, reason, caplog
):
    caplog.set_level("INFO")
    rule = choose_best_rule(CheckpointSection(), evaluation, classes)
    assert rule == BestRule("train/total_loss", higher_is_better=False)
    assert "lowest train/total_loss, because mAP is not computed" in caplog.text
    assert reason in caplog.text


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("AP50_95", BestRule("val/AP50_95", True)),
        ("val/AP_ship", BestRule("val/AP_ship", True)),
        ("total_loss", BestRule("train/total_loss", False)),
        ("loss_box_reg", BestRule("train/loss_box_reg", False)),
    ],
)
def test_a_named_metric_decides_in_its_own_direction(name, rule):
    assert choose_best_rule(CheckpointSection(best_metric=name), SCORED, ["ship"]) == rule


def test_the_direction_can_be_given():
    section = CheckpointSection(best_metric="mAP", higher_is_better=False)
    assert choose_best_rule(section, SCORED, ["ship"]) == BestRule("val/mAP", False)


def test_a_metric_that_is_never_computed_is_refused():
    with pytest.raises(ConfigError, match="'mAP' is never computed in this run"):
        choose_best_rule(CheckpointSection(best_metric="mAP"), UNSCORED, ["ship"])
