import pytest

from obbflow.config import (
    DatasetSection,
    EvaluationSection,
    ModelSection,
    ProductionSection,
    TilingSection,
)
from obbflow.errors import CheckpointError, ConfigError
from obbflow.inference import load_detector
from obbflow.inference.detector import choose_settings

CLASSES = ["plane", "ship"]


def settings(tile_size=1024, trained_overlap=200, model=None, dataset=None, **production):
    return choose_settings(
        CLASSES,
        DatasetSection(format="synthetic", overlap=trained_overlap, **(dataset or {})),
        TilingSection(tile_size=tile_size),
        EvaluationSection(score_threshold=0.4),
        ModelSection(**(model or {})),
        ProductionSection(**production),
    )


def test_nulls_take_what_the_checkpoint_was_trained_with():
    chosen = settings(model={"final_nms_iou_threshold": 0.1, "nms_class_agnostic": True})

    assert chosen.score_thresholds == {"plane": 0.4, "ship": 0.4}
    assert (chosen.nms_iou_threshold, chosen.nms_class_agnostic) == (0.1, True)
    assert (chosen.tile_size, chosen.overlap, chosen.ignore_margin) == (1024, 200, 100.0)


def test_pixels_are_those_of_the_checkpoint():
    chosen = settings(dataset={"bands": (4, 2, 1), "stretch_percentiles": (2, 98)})

    assert (chosen.bands, chosen.stretch_percentiles) == ((4, 2, 1), (2, 98))


def test_a_class_of_its_own_threshold_goes_before_the_common_one():
    chosen = settings(score_threshold=0.2, per_class_score_threshold={"ship": 0.7})

    assert chosen.score_thresholds == {"plane": 0.2, "ship": 0.7}


def test_an_unknown_class_is_refused_with_a_suggestion():
    with pytest.raises(ConfigError, match="no class 'shop', did you mean 'ship'"):
        settings(per_class_score_threshold={"shop": 0.7})


@pytest.mark.parametrize(("tile_size", "overlap"), [(1024, 200), (400, 200), (256, 128), (33, 16)])
def test_the_overlap_is_200_but_at_most_half_a_window(tile_size, overlap):
    assert settings(tile_size, trained_overlap=16).overlap == overlap


def test_an_overlap_as_large_as_the_window_is_refused():
    with pytest.raises(ConfigError, match="smaller than the windows, got 96 and 96"):
        settings(tile_size=96, overlap_pixels=96)


@pytest.mark.parametrize(
    ("production", "margin"),
    [
        ({}, 8.0),
        ({"overlap_pixels": 10}, 5.0),
        ({"overlap_pixels": 0}, 0.0),
        ({"ignore_margin_pixels": 0}, 0.0),
        ({"ignore_margin_pixels": 100}, 100.0),
    ],
    ids=["trained", "small overlap", "no overlap", "off", "as large as can be"],
)
def test_the_margin_is_half_the_trained_overlap_and_never_more_than_half_of_ours(
    production, margin
):
    assert settings(trained_overlap=16, **production).ignore_margin == margin


def test_a_margin_that_would_lose_objects_is_refused():
    with pytest.raises(ConfigError, match="at most half of the windows' overlap"):
        settings(overlap_pixels=10, ignore_margin_pixels=6)


def test_asking_for_scores_that_the_model_never_gives_is_said(caplog):
    settings(score_threshold=0.01)
    assert "inference_pre_nms_score_threshold 0.05" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": {}}, "no class map and configuration"),
        ({"class_map": {"ship": 1}, "config": {}}, "lacks the section 'model'"),
        (
            {"class_map": {"ship": 1}, "config": {"model": {"new_key": 1}}},
            r"does not suit this version of obbflow: model\.new_key",
        ),
    ],
    ids=["weights alone", "no sections", "other version"],
)
def test_a_checkpoint_that_does_not_say_what_it_is_is_refused(tmp_path, content, message):
    with pytest.raises(CheckpointError, match=message):
        load_detector(tmp_path / "best.pt", content, ProductionSection())
