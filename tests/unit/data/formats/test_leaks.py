from pathlib import Path

from obbflow.data.formats.leaks import find_leaks
from scenes import images_table

ROWS = [("a", "train", 9, 9), ("b", "train", 9, 9), ("c", "val", 9, 9), ("d", "val", 9, 9)]


def leaks(sha256, group):
    images = images_table(*ROWS).assign(sha256=sha256, group=group)
    return find_leaks(images.assign(path="/root/" + images["image_id"] + ".png"), Path("/root"))


def test_images_of_their_own_are_no_leak():
    assert leaks(list("1123"), list("PPQQ")) == []


def test_copy_in_val_is_an_error_that_names_both_files():
    (issue,) = leaks(list("1221"), list("PQRS"))[1:]
    assert (issue["kind"], issue["severity"]) == ("same_image_in_train_and_val", "error")
    assert (issue["file"], issue["message"]) == ("d.png", "the same file as a")


def test_scene_in_both_splits_is_one_error():
    (issue,) = leaks(list("1234"), list("PPPP"))
    assert (issue["kind"], issue["severity"]) == ("same_scene_in_train_and_val", "error")
    assert issue["file"] == "c.png"
    assert issue["message"].startswith("images cut from scene 'P': 2 in train, 2 in val")


def test_copy_is_not_reported_as_a_part_of_its_scene_as_well():
    assert [issue["kind"] for issue in leaks(list("1213"), list("PQPR"))] == [
        "same_image_in_train_and_val"
    ]
