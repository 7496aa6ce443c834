import subprocess

import pandas as pd
import pytest
from toy import toy_tiles

from obbflow.training.record import data_hash, git_state, library_versions


@pytest.fixture
def data(tmp_path):
    return toy_tiles(tmp_path / "tiles")


def fingerprint(data, **changes) -> str:
    tables = {
        "tile_index": data.tile_index,
        "tile_annotations": data.tile_annotations,
        "class_map": data.class_map,
    }
    return data_hash(**(tables | changes))


def test_the_data_hash_does_not_depend_on_the_folder(data, tmp_path):
    moved = toy_tiles(tmp_path / "elsewhere")
    assert fingerprint(moved) == fingerprint(data)


def test_the_data_hash_survives_a_parquet_file(data, tmp_path):
    data.tile_annotations.to_parquet(tmp_path / "a.parquet")
    again = pd.read_parquet(tmp_path / "a.parquet")
    assert fingerprint(data, tile_annotations=again) == fingerprint(data)


def test_the_data_hash_depends_on_boxes_tiles_and_classes(data):
    changed = [
        fingerprint(data, tile_annotations=data.tile_annotations.assign(angle=0.1)),
        fingerprint(data, tile_annotations=data.tile_annotations.assign(ignore=True)),
        fingerprint(data, tile_index=data.tile_index.iloc[1:]),
        fingerprint(data, class_map={"plane": 2, "ship": 1}),
        fingerprint(data),
    ]
    assert len(set(changed)) == 5


def test_outside_git_the_state_is_unknown(tmp_path):
    assert set(git_state(tmp_path).values()) == {None}


def test_the_state_of_a_repository_is_told(tmp_path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    git("init", "--quiet", "--initial-branch=main")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "--quiet", "--message", "first")
    state = git_state(tmp_path)
    assert len(state["commit"]) == 40
    assert state["describe"] == state["commit"][: len(state["describe"])]
    assert (state["branch"], state["dirty"]) == ("main", False)
    (tmp_path / "file").write_text("2")
    assert git_state(tmp_path)["dirty"] is True


def test_installed_libraries_have_versions():
    assert {"torch", "numpy", "pandas"} <= set(library_versions())
