import zipfile

import pytest
from kedro.io import DatasetError, Version

from obbflow.datasets import TextFolderDataset

FILES = {"Task1_ship.txt": "P0001 0.9 1 2\n", "Task1_avion_été.txt": ""}


def dataset(tmp_path, version="2026-01-02T03.04.05.678Z", **options):
    versions = Version(None, version) if version else None
    return TextFolderDataset(filepath=str(tmp_path / "task1"), version=versions, **options)


def test_files_come_back_as_they_were_saved(tmp_path):
    dataset(tmp_path).save(FILES)

    assert dataset(tmp_path).load() == FILES
    folder = tmp_path / "task1" / "2026-01-02T03.04.05.678Z" / "task1"
    assert {path.name for path in folder.iterdir()} == set(FILES)


def test_the_archive_holds_the_same_files_in_no_folder(tmp_path):
    saved = dataset(tmp_path, archive="all.zip")
    saved.save(FILES)

    assert saved.load() == FILES
    folder = tmp_path / "task1" / "2026-01-02T03.04.05.678Z" / "task1"
    with zipfile.ZipFile(folder / "all.zip") as archive:
        packed = {name: archive.read(name).decode("utf-8") for name in archive.namelist()}
    assert packed == FILES


def test_a_folder_without_versions_is_replaced_whole(tmp_path):
    plain = dataset(tmp_path, version=None)
    plain.save(FILES)
    plain.save({"other.txt": "x"})

    assert plain.load() == {"other.txt": "x"}
    assert [path.name for path in tmp_path.iterdir()] == ["task1"]


def test_a_failed_save_leaves_the_former_folder_and_no_scratch(tmp_path):
    plain = dataset(tmp_path, version=None)
    plain.save(FILES)

    with pytest.raises(DatasetError):
        plain.save({"good.txt": "x", "bad.txt": None})

    assert plain.load() == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["task1"]


@pytest.mark.parametrize("name", ["a/b.txt", "../b.txt", "all.zip", "", ".."])
def test_a_name_that_is_no_file_of_the_folder_is_refused(tmp_path, name):
    with pytest.raises(DatasetError, match="no plain file name"):
        dataset(tmp_path, archive="all.zip").save({name: "x"})


def test_nothing_exists_before_the_first_save(tmp_path):
    assert not dataset(tmp_path).exists()
