import pytest

from obbflow.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    ObbflowError,
    TrainingError,
    did_you_mean,
)


@pytest.mark.parametrize("kind", [CheckpointError, ConfigError, DataError, TrainingError])
def test_every_kind_of_mistake_is_caught_as_one(kind):
    with pytest.raises(ObbflowError, match=r"labels/x\.txt:3"):
        raise kind("labels/x.txt:3: eight numbers expected")


def test_a_close_name_is_suggested():
    assert did_you_mean("small-vehicel", ["ship", "small-vehicle"]) == (
        ", did you mean 'small-vehicle'?"
    )


@pytest.mark.parametrize("valid", [["ship", "plane"], []], ids=["far", "nothing to choose from"])
def test_nothing_is_suggested_when_no_name_is_close(valid):
    assert did_you_mean("tennis-court", valid) == ""
