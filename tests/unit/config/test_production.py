import pytest

from obbflow.config import MODEL_OVERRIDES, ProductionSection, fill_sections
from obbflow.errors import ConfigError

DEMO = {"dataset": {"format": "synthetic"}}


def test_everything_is_inherited_by_default():
    assert set(ProductionSection().model_dump().values()) == {None}


def test_only_what_chooses_detections_overrides_the_model():
    """A checkpoint fits whatever these are: none may say how boxes are coded or classes scored."""
    assert set(MODEL_OVERRIDES) == {
        "final_nms_iou_threshold",
        "final_nms_use_cpu",
        "inference_pre_nms_score_threshold",
        "max_detections_per_image",
        "nms_class_agnostic",
        "roi_inference_top_class_only",
        "rpn_nms_threshold",
        "rpn_post_nms_top_n",
        "rpn_pre_nms_top_n",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("score_threshold", 1.5),
        ("final_nms_iou_threshold", 0),
        ("overlap_pixels", -1),
        ("ignore_margin_pixels", -1),
        ("max_detections_per_image", 0),
        ("per_class_score_threshold", {"ship": 2}),
    ],
)
def test_a_value_out_of_range_is_named_with_its_key(key, value):
    with pytest.raises(ConfigError, match=rf"production\.{key}"):
        fill_sections({**DEMO, "production": {key: value}})


def test_the_section_passes_the_door_as_plain_values():
    given = {"images": "new/images", "per_class_score_threshold": {"storage tank": 0.3}}

    filled = fill_sections({**DEMO, "production": given})["production"]

    assert {key: filled[key] for key in given} == given
    assert fill_sections({**DEMO, "production": filled})["production"] == filled
