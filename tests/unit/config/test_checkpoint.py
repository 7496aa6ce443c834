import pytest

from obbflow.config import CheckpointSection, fill_sections
from obbflow.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"load_from_checkpoint": "a.pt", "load_from_experiment": "r1"},
            r"checkpoint\.load_from_checkpoint: a training starts from one place",
        ),
        (
            {"load_include_prefixes": ["backbone."]},
            r"checkpoint\.load_include_prefixes: there is nothing to load from",
        ),
        (
            {"load_exclude_prefixes": ["roi_head."], "discover_previous_run": True},
            r"checkpoint\.load_exclude_prefixes: there is nothing to load from",
        ),
        (
            {"resume_from_checkpoint_epoch": False, "discover_previous_run": True},
            r"checkpoint\.resume_from_checkpoint_epoch: discover_previous_run continues",
        ),
    ],
    ids=["two starts", "included", "excluded", "from epoch 1"],
)
def test_a_key_that_would_have_no_effect_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        fill_sections({"dataset": {"format": "synthetic"}, "checkpoint": values})


@pytest.mark.parametrize(
    ("values", "resumes"),
    [
        ({}, True),
        ({"load_include_prefixes": ["backbone."]}, False),
        ({"load_exclude_prefixes": ["roi_head."]}, False),
        ({"resume_from_checkpoint_epoch": False}, False),
        ({"resume_from_checkpoint_epoch": False, "discover_previous_run": True}, False),
    ],
)
def test_parts_of_the_weights_are_never_resumed(values, resumes):
    for start in ("load_from_checkpoint", "load_from_experiment"):
        section = CheckpointSection(**{start: "r1"}, **values)
        assert section.resumes is resumes
