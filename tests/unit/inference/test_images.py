import numpy as np
import pytest
from PIL import Image

from obbflow.errors import ConfigError, DataError
from obbflow.inference import find_images


def write(path, size=(20, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((size[1], size[0], 3), dtype=np.uint8)).save(path)
    return path


def test_images_of_all_folders_are_named_by_their_path(tmp_path):
    write(tmp_path / "b.png", (30, 20))
    write(tmp_path / "images" / "P0001.JPG")
    write(tmp_path / "north" / "a.b.tif")
    (tmp_path / "notes.txt").write_text("x")
    write(tmp_path / ".cache" / "c.png")

    table = find_images(tmp_path)

    assert table["image_id"].tolist() == ["P0001", "b", "north/a.b"]
    assert table.loc[1, ["width", "height"]].tolist() == [30, 20]
    assert table["path"].tolist()[1] == str(tmp_path / "b.png")


def test_one_file_can_be_named(tmp_path):
    path = write(tmp_path / "images" / "scene 1.png")

    assert find_images(path)["image_id"].tolist() == ["scene 1"]


def test_nothing_set_says_how_to_set_it():
    with pytest.raises(ConfigError, match=r"--params production\.images=FOLDER"):
        find_images(None)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"production\.images: .*nowhere does not exist"):
        find_images(tmp_path / "nowhere")


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no image"):
        find_images(tmp_path)


def test_a_file_that_is_no_image_is_refused(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("x")
    with pytest.raises(DataError, match="no image by its ending"):
        find_images(path)


def test_two_images_of_one_name_are_refused(tmp_path):
    write(tmp_path / "a.png")
    write(tmp_path / "images" / "a.jpg")
    with pytest.raises(DataError, match="same name"):
        find_images(tmp_path)


def test_a_broken_image_is_left_out_with_a_warning(tmp_path, caplog):
    write(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")

    assert find_images(tmp_path)["image_id"].tolist() == ["a"]
    assert "b.png: left out" in caplog.text


def test_only_broken_images_are_an_error(tmp_path):
    (tmp_path / "b.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of the 1 images"):
        find_images(tmp_path)
