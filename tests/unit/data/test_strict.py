import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.source import make_issue
from obbflow.data.strict import require_no_errors
from obbflow.errors import DataError
from obbflow.tables import DATA_ISSUES, make_table
from scenes import SQUARE, write_scene


def issues(n_errors):
    rows = [make_issue("a.txt", "odd", "is odd", "kept")]
    rows += [
        make_issue(f"e{n}.txt", "bad", "is bad", "dropped", line=n or None, severity="error")
        for n in range(n_errors)
    ]
    return make_table(rows, DATA_ISSUES)


def test_warnings_do_not_stop_a_strict_reading(tmp_path):
    write_scene(tmp_path, "P1", [f"{SQUARE} ship 0"])
    (tmp_path / "labelTxt" / "P2.txt").write_text(f"{SQUARE} ship 0")
    data = read_data_set(tmp_path, DatasetSection(data_root=tmp_path, strict=True), 0)
    assert data.issues["kind"].tolist() == ["label_without_image"]
    assert len(data.annotations) == 1


def test_first_errors_are_listed_with_their_place_and_the_others_counted():
    with pytest.raises(DataError) as caught:
        require_no_errors(issues(12), "root")
    lines = str(caught.value).splitlines()
    assert lines[0] == "root: errors in the data: 12 (dataset.strict=true)"
    assert lines[1:3] == ["  e0.txt: is bad", "  e1.txt:1: is bad"]
    assert lines[11] == "  and 2 more"
    assert "a.txt" not in str(caught.value)


def test_bad_line_stops_a_strict_reading_only(tmp_path):
    write_scene(tmp_path, "P1", [f"{SQUARE} ship 0", "1 2 3 ship"])
    settings = {"data_root": tmp_path}
    assert len(read_data_set(tmp_path, DatasetSection(**settings), 0).annotations) == 1
    with pytest.raises(DataError, match=r"labelTxt/P1\.txt:2: 4 fields"):
        read_data_set(tmp_path, DatasetSection(**settings, strict=True), 0)
