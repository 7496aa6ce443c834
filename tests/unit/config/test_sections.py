from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from obbflow.config import (
    SECTIONS,
    DatasetSection,
    DemoSection,
    PathsSection,
    TrainingSection,
    fill_sections,
)
from obbflow.errors import ConfigError

DEMO = {"dataset": {"format": "synthetic"}}


def test_absent_and_null_sections_become_their_defaults():
    filled = fill_sections({**DEMO, "loss": None})

    assert list(filled) == list(SECTIONS)
    assert filled["loss"]["class_weight_method"] == "sqrt"
    assert filled["training"]["num_epochs"] == 20


def test_given_values_are_kept():
    filled = fill_sections({**DEMO, "training": {"num_epochs": 3}})

    assert filled["training"]["num_epochs"] == 3
    assert filled["training"]["momentum"] == 0.9


def test_filled_parameters_are_plain_and_pass_again_unchanged():
    filled = fill_sections({**DEMO, "dataset": {"format": "synthetic", "data_root": "some/folder"}})

    assert yaml.safe_load(yaml.safe_dump(filled)) == filled
    assert fill_sections(filled) == filled
    assert filled["dataset"]["data_root"] == "some/folder"


def test_what_was_given_is_not_changed():
    given = {"dataset": {"format": "synthetic"}, "loss": None}

    fill_sections(given)

    assert given == {"dataset": {"format": "synthetic"}, "loss": None}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"trian": {"num_epochs": 1}}, "trian: unknown section"),
        (
            {"loss": {"class_weight_metod": "sqrt"}},
            "loss.class_weight_metod: unknown key, did you mean 'class_weight_method'?",
        ),
        ({"training": {"num_epochs": 0}}, "training.num_epochs: input should be greater than"),
        ({"training": {"optimizer": "sdg"}}, "training.optimizer: input should be 'sgd' or"),
        ({"training": 3}, "training: a section holds keys and values, got 3"),
        ({"training": {"num_epochs": None}}, "training.num_epochs: input should be a valid int"),
        (
            {"training": {"lr_scheduler_type": "multistep"}},
            "training.lr_scheduler_milestones: multistep needs at least one epoch",
        ),
        (
            {"dataset": {"format": "synthetic", "overlap": 64}, "tiling": {"tile_size": 64}},
            "dataset.overlap: must be smaller than tiling.tile_size, got 64 and 64",
        ),
        (
            {"training": {"lr_scheduler_type": "one_cycle", "lr_warmup_steps": 10}},
            "training.lr_warmup_steps: one_cycle warms up by itself, got 10 steps",
        ),
        (
            {"dataset": {"format": "synthetic", "overlap": 15}},
            "dataset.overlap: input should be a multiple of 2, got 15",
        ),
        ({"preprocessing": {"target_size": [0, 9]}}, "preprocessing.target_size.0: input should"),
        ({"preprocessing": {"target_size": [9, -5]}}, "preprocessing.target_size.1: input should"),
        ({"preprocessing": {"normalize_std": [0.2, 0, 0.2]}}, "preprocessing.normalize_std.1:"),
        ({"preprocessing": {"normalize_mean": [123.7, 0, 0]}}, "preprocessing.normalize_mean.0:"),
        ({"model": {"anchor_scales": [0]}}, "model.anchor_scales.0: input should be greater"),
        ({"model": {"anchor_ratios": [1, -1]}}, "model.anchor_ratios.1: input should be greater"),
        ({"model": {"target_stds": [0.1, 0.1, 0, 0.2, 0.1]}}, "model.target_stds.2:"),
        (
            {"model": {"rpn_positive_iou_threshold": 0.2}},
            "model.rpn_positive_iou_threshold: must not be below rpn_negative_iou_threshold, got "
            "0.2 and 0.3",
        ),
        (
            {"model": {"roi_negative_iou_threshold": 0.6}},
            "model.roi_positive_iou_threshold: must not be below roi_negative_iou_threshold, got "
            "0.5 and 0.6",
        ),
        (
            {"model": {"backbone": "swin_t", "backbone_width": 0.5}},
            "model.backbone_width: only resnet18 .. resnet152 can be narrowed, got 0.5 with swin_t",
        ),
        (
            {"model": {"frozen_stages": 2, "trainable_layers": 3}},
            "model.frozen_stages: 2 lets the last 2 layers learn, but trainable_layers is 3",
        ),
        (
            {"loss": {"class_weight_overrides": {"ship": -1}}},
            "loss.class_weight_overrides.ship: input should be greater than or equal to 0",
        ),
    ],
    ids=lambda value: value.split(":")[0] if isinstance(value, str) else "",
)
def test_a_mistake_is_named_with_its_key(parameters, message):
    with pytest.raises(ConfigError) as caught:
        fill_sections({**DEMO, **parameters})

    assert message in str(caught.value)


def test_all_mistakes_come_in_one_message():
    with pytest.raises(ConfigError) as caught:
        fill_sections(
            {
                **DEMO,
                "modle": {},
                "loss": {"focal_gama": 2},
                "training": {"num_epochs": -1, "learning_rate": "fast"},
            }
        )

    problems = [line.strip() for line in str(caught.value).splitlines()[1:-1]]
    assert {problem.split(":")[0] for problem in problems} == {
        "modle",
        "loss.focal_gama",
        "training.num_epochs",
        "training.learning_rate",
    }
    assert "did you mean 'model'?" in problems[0]


def test_real_images_need_a_data_root():
    with pytest.raises(ConfigError, match="OBBFLOW_DATA_ROOT"):
        fill_sections({"dataset": {"format": "dota"}})


@pytest.mark.parametrize(
    ("keys", "draws"),
    [({}, True), ({"data_root": "photos"}, False), ({"train_tiles_dirs": ["tiles"]}, False)],
    ids=["alone", "with a data root", "with tiles"],
)
def test_demo_scenes_are_drawn_only_without_images_of_the_user(keys, draws):
    assert DatasetSection(format="synthetic", **keys).draws_demo is draws


def test_ready_tiles_to_train_on_do_without_a_data_root():
    section = DatasetSection(train_tiles_dir="a", train_tiles_dirs=["b"], val_tiles_dir="c")
    assert section.tile_roots("train") == (Path("a"), Path("b"))
    assert section.tile_roots("val") == (Path("c"),)
    assert section.place == "a, b, c"
    with pytest.raises(ValidationError, match=r"data_root: required for dataset\.format 'dota'"):
        DatasetSection(val_tiles_dir="c")


@pytest.mark.parametrize("given", ["1.5", 1.5], ids=["text", "number, as YAML reads it"])
def test_version_of_dota_may_be_written_as_a_number(given):
    section = DatasetSection(data_root="a", dota_version=given)
    assert section.dota_version == "1.5"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bands": [1, 2]}, r"one band or three, got 2: \[1, 2\]"),
        ({"bands": []}, "one band or three, got 0"),
        ({"bands": [0, 1, 2]}, "greater than 0"),
        ({"stretch_percentiles": [98, 2]}, r"first must be below the second, got \[98.0, 2.0\]"),
        ({"stretch_percentiles": [0, 101]}, "less than or equal to 100"),
    ],
)
def test_bands_and_percentiles_that_make_no_picture_are_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        DatasetSection(format="synthetic", **given)


@pytest.mark.parametrize("key", ["ignore_labels", "allowed_classes"])
def test_a_lookalike_cannot_be_ignored_or_allowed_too(key):
    with pytest.raises(ValidationError, match=rf"lookalike_classes: 'b', 'c' .* dataset\.{key}"):
        DatasetSection(
            format="synthetic", lookalike_classes=("c", "b", "a"), **{key: ("d", "b", "c")}
        )


def test_every_section_is_frozen_and_says_what_it_is():
    for name, section in SECTIONS.items():
        assert section.model_config["frozen"], name
        assert section.model_config["extra"] == "forbid", name
        assert section.__doc__, name

    with pytest.raises(ValidationError, match="frozen"):
        DemoSection().seed = 1


@pytest.mark.parametrize(
    ("given", "schedule"),
    [
        ({}, "step"),
        ({"lr_scheduler_milestones": [8, 11]}, "multistep"),
        ({"lr_scheduler_type": "cosine_annealing"}, "cosine_annealing"),
    ],
    ids=["nothing said", "milestones", "named"],
)
def test_the_schedule_follows_from_what_is_said(given, schedule):
    assert TrainingSection(**given).schedule == schedule


def test_everything_is_written_below_one_folder():
    paths = PathsSection(data_dir="/data")

    assert [str(folder) for folder in (paths.demo_scenes, paths.tiles, paths.runs)] == [
        "/data/01_raw/demo",
        "/data/03_primary/tiles",
        "/data/06_models/runs",
    ]
