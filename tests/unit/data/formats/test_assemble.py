import re

import pytest

from obbflow.config import DatasetSection
from obbflow.data.formats.assemble import assemble
from obbflow.data.formats.source import BadLine, LabelFile, LabelLine, Scene
from obbflow.errors import DataError
from scenes import write_scene

CORNERS = (1.0, 2.0, 9.0, 2.0, 9.0, 6.0, 1.0, 6.0)


@pytest.fixture
def image(tmp_path):
    return write_scene(tmp_path, "P1", lines=None, size=(40, 30))


def scene(image, name, split=None, labels=None, group=None):
    read = None if labels is None else lambda _: labels
    return Scene(name, image, split, f"{name}.txt", read, group)


def tables(*scenes, root=None, val_fraction=0.5):
    dataset = DatasetSection(format="synthetic", val_fraction=val_fraction)
    return assemble(scenes, [], root, dataset, seed=0)


def test_labels_are_read_with_the_facts_of_their_image(image):
    def read(facts):
        corners = (facts.width, facts.height, 9, 2, 9, 6, 1, 6)
        return LabelFile([LabelLine(7, corners, "ship", True)], gsd=0.5)

    data = tables(Scene("P1", image, "train", "all.csv", read))
    (row,) = data.annotations.to_dict("records")
    assert (row["x1"], row["y1"], row["class_name"], row["difficult"]) == (40, 30, "ship", True)
    assert (row["source_file"], row["source_line"], row["ignore"]) == ("all.csv", 7, False)
    assert data.images["gsd"].tolist() == [0.5]


def test_scenes_are_sorted_and_objects_keep_the_order_of_their_file(image):
    def labels(*names):
        return LabelFile([LabelLine(n, CORNERS, name, False) for n, name in enumerate(names, 1)])

    data = tables(
        scene(image, "b", "train", labels("ship", "plane")),
        scene(image, "c", "train", labels()),
        scene(image, "a", "train", labels("plane")),
    )
    assert data.images["image_id"].tolist() == ["a", "b", "c"]
    assert data.annotations[["image_id", "class_name"]].values.tolist() == [
        ["a", "plane"], ["b", "ship"], ["b", "plane"],
    ]  # fmt: skip
    assert data.annotations["object_id"].tolist() == [0, 1, 2]


def test_bad_line_is_an_error_with_its_place(image):
    labels = LabelFile([LabelLine(1, CORNERS, "ship", False)], [BadLine(2, "odd", "is odd")])
    (issue,) = tables(scene(image, "P1", "train", labels)).issues.to_dict("records")
    assert issue == {
        "file": "P1.txt", "line": 2, "image_id": "P1", "severity": "error", "kind": "odd",
        "message": "is odd", "action": "dropped",
    }  # fmt: skip


@pytest.mark.parametrize("is_below", [True, False])
def test_files_are_named_relative_to_the_root_or_else_in_full(image, tmp_path, is_below):
    root = tmp_path if is_below else tmp_path / "other"
    (issue,) = tables(scene(image, "P1", "train"), root=root).issues.to_dict("records")
    assert issue["kind"] == "image_without_label"
    assert issue["file"] == ("images/P1.png" if is_below else image.as_posix())


def test_a_given_split_stays_and_the_others_are_chosen_by_group(image):
    free = [scene(image, f"{group}{n}", group=group) for group in "abcd" for n in range(3)]
    images = tables(scene(image, "t", "train"), *free, val_fraction=0.25).images
    assert images.set_index("image_id")["split"]["t"] == "train"
    per_group = images[images["image_id"] != "t"].groupby("group")["split"]
    assert per_group.nunique().eq(1).all()
    assert sorted(per_group.first()) == ["train", "train", "train", "val"]


def test_nothing_is_chosen_for_validation_where_it_is_given(image, caplog):
    with caplog.at_level("INFO"):
        images = tables(scene(image, "a"), scene(image, "b"), scene(image, "v", "val")).images
    assert images["split"].tolist() == ["train", "train", "val"]
    assert "Validation images are given" in caplog.text


def test_two_scenes_of_one_id_are_refused_with_both_files(image):
    other = write_scene(image.parent, "P2", lines=None)
    with pytest.raises(DataError, match=f"{re.escape(str(image))} and {re.escape(str(other))}"):
        tables(scene(image, "x", "train"), scene(other, "x", "train"))


def test_class_of_two_scenes_is_trained_on_and_validated_on_by_its_final_name(image):
    def shows(*names):
        return LabelFile([LabelLine(1, CORNERS, name, False) for name in names])

    rare = {"P3": "Helipad", "P4": "helipad"}
    scenes = [
        scene(image, f"P{number}", labels=shows("ship", rare.get(f"P{number}", "ship")))
        for number in range(10)
    ]
    for seed in range(5):
        dataset = DatasetSection(
            format="synthetic", val_fraction=0.2, map_labels={"Helipad": "helipad"}
        )
        images = assemble(scenes, [], None, dataset, seed).images.set_index("image_id")
        assert images.loc[["P3", "P4"], "split"].nunique() == 2
        assert images["split"].eq("val").sum() == 2
