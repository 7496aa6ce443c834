import pytest

from obbflow.config import fill_sections
from obbflow.errors import ConfigError

UNWEIGHTED = {"loss_type": "cross_entropy"}
# section, key, value that nothing looks at unless ... -> what makes it count
IDLE = [
    ("loss", "label_smoothing", 0.1, {"loss": {"loss_type": "focal"}}, {"loss": UNWEIGHTED}),
    (
        "loss",
        "label_smoothing",
        0.1,
        {"loss": {"loss_type": "none"}, "model": {"roi_loss_type": "focal"}},
        {"loss": {"loss_type": "none"}},
    ),
    ("loss", "focal_gamma", 3.0, {}, {"loss": {"loss_type": "focal_weighted"}}),
    ("loss", "focal_alpha", 0.5, {}, {"loss": {"loss_type": "focal"}}),
    ("loss", "background_weight", 0.5, {"loss": UNWEIGHTED}, {}),
    ("loss", "class_weight_overrides", {"ship": 2.0}, {"loss": {"loss_type": "focal"}}, {}),
    ("loss", "class_weight_beta", 0.9, {}, {"loss": {"class_weight_method": "effective_num"}}),
    ("model", "roi_loss_type", "focal", {}, {"loss": {"loss_type": "none"}}),
    (
        "model",
        "roi_focal_gamma",
        1.0,
        {"loss": {"loss_type": "none"}},
        {"loss": {"loss_type": "none"}, "model": {"roi_loss_type": "focal"}},
    ),
    ("model", "backbone_weights", "w.pth", {"model": {"pretrained_backbone": False}}, {}),
    ("model", "rpn_min_pos_iou", 0.2, {"model": {"rpn_match_low_quality": False}}, {}),
    ("model", "roi_min_pos_iou", 0.2, {}, {"model": {"roi_match_low_quality": True}}),
    (
        "preprocessing",
        "random_rotate_prob",
        1.0,
        {},
        {"preprocessing": {"enable_random_rotate": True}},
    ),
    (
        "preprocessing",
        "random_rotate_rect_labels",
        ["storage-tank"],
        {},
        {"preprocessing": {"enable_random_rotate": True}},
    ),
    ("dataset", "max_samples_shuffle_seed", 1, {}, {"dataset": {"max_val_samples": 9}}),
    ("tiling", "jpeg_quality", 80, {}, {"tiling": {"image_format": "jpg"}}),
    ("tiling", "jpeg_chroma", "4:2:0", {}, {"tiling": {"image_format": "jpg"}}),
    (
        "training",
        "lr_scheduler_milestones",
        [8],
        {"training": {"lr_scheduler_type": "step"}},
        {"training": {"lr_scheduler_type": "multistep"}},
    ),
    ("training", "lr_mult_roi", 3.0, {}, {"training": {"use_lr_param_groups": True}}),
]


def fill(others, section="dataset", **values):
    given = {"dataset": {}, **{name: dict(values) for name, values in others.items()}}
    given["dataset"]["format"] = "synthetic"
    given[section] = {**given.get(section, {}), **values}
    return fill_sections(given)


@pytest.mark.parametrize(("section", "key", "value", "off", "on"), IDLE)
def test_a_value_that_nothing_would_look_at_is_refused(section, key, value, off, on):
    with pytest.raises(ConfigError, match=rf"{section}\.{key}: .* would have no effect; .*set "):
        fill(off, section, **{key: value})

    assert fill(on, section, **{key: value})[section][key] == value


@pytest.mark.parametrize(("section", "key", "off"), [(*case[:2], case[3]) for case in IDLE])
def test_a_default_is_never_refused(section, key, off):
    default = fill({})[section][key]

    assert fill(off, section, **{key: default})[section][key] == default


def test_all_contradictions_come_in_one_message():
    with pytest.raises(ConfigError) as caught:
        fill({"loss": {"loss_type": "focal", "label_smoothing": 0.1, "background_weight": 2.0}})

    lines = str(caught.value).splitlines()[1:-1]
    assert [line.strip().partition(":")[0] for line in lines] == [
        "loss.label_smoothing",
        "loss.background_weight",
    ]
