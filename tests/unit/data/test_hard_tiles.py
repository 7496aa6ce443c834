import logging

import pytest

from obbflow.config import DatasetSection
from obbflow.data.hard_tiles import weigh_tiles
from obbflow.errors import DataError

TILES = ["a", "b", "c", "d"]


@pytest.fixture
def weigh(tmp_path):
    def weigh(text, **keys):
        path = tmp_path / "scores.csv"
        path.write_text(text, encoding="utf-8")
        section = DatasetSection(format="synthetic", tile_metrics_csv=path, **keys)
        return weigh_tiles(TILES, section).tolist()

    return weigh


def test_without_a_file_there_are_no_weights():
    assert weigh_tiles(TILES, DatasetSection(format="synthetic")) is None


def test_tiles_below_the_threshold_weigh_more(weigh):
    text = "tile_id,f1\nd,0.1\na,0.79\nb,0.8\nc,\n"
    assert weigh(text) == [2, 1, 1, 2]
    assert weigh(text, hard_tile_threshold=0.5, hard_tile_oversample_factor=3.5) == [1, 1, 1, 3.5]


def test_image_id_and_another_column_serve_as_well(weigh):
    text = "image_id,f1,recall\na,0,1\nb,1,0\nc,1,nan\nd,1,1\n"
    assert weigh(text, hard_tile_metric_column="recall") == [1, 2, 1, 1]


def test_numbers_of_tiles_without_a_score_and_of_others_are_told(weigh, caplog):
    with caplog.at_level(logging.INFO):
        assert weigh("tile_id,f1\na,0\nz,0\ny,1\n") == [2, 1, 1, 1]
    assert "1 of 4 training tiles have f1 below 0.8" in caplog.messages[0]
    assert "2 other tiles" in caplog.messages[0]
    assert "no row for 3 of 4 training tiles" in caplog.messages[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column tile_id or image_id among none"),
        ("tile_id,f1\na,1,2\n", r"scores\.csv:2: 3 fields, but the header has 2"),
        ("tile_id,f1\na,inf\n", r"scores\.csv:2: f1 is 'inf', not a number"),
        ("name,f1\na,1\n", "no column tile_id or image_id among name, f1"),
        ("tile_id,F1\na,1\n", "no column 'f1' among tile_id, F1"),
        ("tile_id,f1\na,1\nb,1\na,0\n", r"scores\.csv:4: tile 'a' stands there already"),
        ("tile_id,f1\na,1\nb,good\n", r"scores\.csv:3: f1 is 'good', not a number"),
        ("tile_id,f1\nx,1\n", "none of its 1 tiles is one of the 4 training tiles"),
    ],
    ids=[
        "empty",
        "more fields",
        "not finite",
        "no tile column",
        "no score column",
        "twice",
        "text",
        "other tiles",
    ],
)
def test_file_that_does_not_fit_is_one_message(weigh, text, message):
    with pytest.raises(DataError, match=message):
        weigh(text)


def test_missing_file_is_named(tmp_path):
    section = DatasetSection(format="synthetic", tile_metrics_csv=tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"none\.csv: no such file; correct dataset\.tile_m"):
        weigh_tiles(TILES, section)
