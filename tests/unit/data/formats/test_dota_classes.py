import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats import read_data_set
from obbflow.data.formats.dota_classes import DOTA_CLASSES, compare_with_version
from scenes import SQUARE, annotations_table, level_box, write_scene

BOX = level_box(1, 1, 9, 5)


def compare(*names, version="1.0"):
    issues = compare_with_version(annotations_table(*(("P1", n, BOX) for n in names)), version)
    return issues[issues["kind"] == "class_not_in_version"]["message"].tolist()


def test_each_version_adds_classes_to_the_one_before():
    assert [len(names) for names in DOTA_CLASSES.values()] == [15, 16, 18]
    assert set(DOTA_CLASSES["1.0"]) < set(DOTA_CLASSES["1.5"]) < set(DOTA_CLASSES["2.0"])
    assert set(DOTA_CLASSES["2.0"]) - set(DOTA_CLASSES["1.0"]) == {
        "container-crane",
        "airport",
        "helipad",
    }


@pytest.mark.parametrize("version", DOTA_CLASSES)
def test_labels_of_the_version_differ_in_nothing(version):
    names = DOTA_CLASSES[version]
    table = annotations_table(*(("P1", name, BOX) for name in names))
    assert compare_with_version(table, version).empty


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PLANE", "did you mean 'plane'"),
        ("storage tank", "did you mean 'storage-tank'"),
        ("small-vehicel", "did you mean 'small-vehicle'"),
        ("container-crane", "but of 1.5: set dataset.dota_version"),
        ("helipad", "but of 2.0: set dataset.dota_version"),
    ],
)
def test_class_that_the_version_lacks_has_a_suggestion(name, words):
    (message,) = compare("ship", name, name)
    assert message.startswith(f"class {name!r} is not one of the 15 of DOTA 1.0")
    assert words in message
    assert message.endswith("(lines with it: 2)")


def test_class_unlike_any_other_has_none():
    (message,) = compare("zzz")
    assert message == "class 'zzz' is not one of the 15 of DOTA 1.0 (lines with it: 1)"


def test_difference_is_reported_at_its_first_line_and_changes_nothing(tmp_path):
    write_scene(tmp_path, "P1", ["gsd:1", f"{SQUARE} ship 0", f"{SQUARE} Plane 0"])
    data = read_data_set(tmp_path, DatasetSection(data_root=tmp_path, dota_version="1.0"), 0)
    assert data.annotations["class_name"].tolist() == ["ship", "Plane"]
    found = data.issues.set_index("kind")
    assert found.loc["class_not_in_version", ["file", "line", "severity"]].tolist() == [
        "labelTxt/P1.txt", 3, "warning",
    ]  # fmt: skip
    assert found.loc["class_without_label", "severity"] == "info"
    assert "helicopter" in found.loc["class_without_label", "message"]
    assert "ship" not in found.loc["class_without_label", "message"]
