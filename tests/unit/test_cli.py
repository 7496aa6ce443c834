import errno

import click
import pytest
from kedro.framework.cli.utils import KedroCliError
from kedro.io import DatasetError
from kedro.io.core import VersionNotFoundError

from obbflow.cli import describe_mistake, one_message
from obbflow.errors import DataError


def wrapped(error):
    """Return ``error`` as a catalog entry wraps it."""
    outer = DatasetError("Failed while loading data from dataset images")
    outer.__cause__ = error
    return outer


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DataError("labels/a.txt:3: bad"), "labels/a.txt:3: bad"),
        (wrapped(DataError("labels/a.txt:3: bad")), "labels/a.txt:3: bad"),
        (
            wrapped(FileNotFoundError("images.parquet")),
            "Failed while loading data from dataset images\nRun the pipeline that writes it first.",
        ),
        (VersionNotFoundError("no version"), "no version\nRun the pipeline that writes it first."),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/tiles/a.png"),
            "/data/tiles/a.png: No space left on device. Make room or give access, or let the "
            "project write elsewhere with the environment variable OBBFLOW_DATA_DIR.",
        ),
    ],
    ids=["our own", "within a dataset", "missing input", "missing version", "full disk"],
)
def test_a_mistake_of_the_user_has_a_message(error, message):
    assert describe_mistake(error) == message


@pytest.mark.parametrize(
    "error",
    [
        ValueError("rboxes must be (N, 5)"),
        wrapped(ValueError("table TileIndex lacks the columns x")),
        DatasetError("no cause"),
        FileNotFoundError("in our own code"),
    ],
    ids=["value", "schema", "dataset", "file"],
)
def test_a_mistake_of_the_programmer_has_none(error):
    assert describe_mistake(error) is None


def test_a_mistake_becomes_one_message_with_status_1():
    with (
        pytest.raises(click.ClickException, match="no images") as caught,
        one_message(verbose=False),
    ):
        raise DataError("no images")

    assert caught.value.exit_code == 1


def test_verbose_keeps_the_traceback():
    with pytest.raises(DataError, match="no images"), one_message(verbose=True):
        raise DataError("no images")


def test_a_fault_of_our_own_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), one_message(verbose=False):
        raise ZeroDivisionError


def test_mistakes_in_kedro_options_are_shown_by_their_text():
    with (
        pytest.raises(click.ClickException, match="cannot be used together"),
        one_message(verbose=False),
    ):
        raise KedroCliError("Options '--pipeline' and '--pipelines' cannot be used together")
