import shutil
from collections import Counter

import pandas as pd
import pytest
from click.testing import CliRunner

from obbflow.cli import cli
from obbflow.data.formats.airbus_folds import choose_folds, make_csv_pair
from obbflow.errors import DataError


def counts_of(n_groups):
    """Groups of 1 to 5 tiles with cars; every fifth has the only ships."""
    return {
        f"i{number}": Counter({"": number % 5 + 1, "car": 7, "ship": 2 * (number % 5 == 0)})
        for number in range(n_groups)
    }


def test_folds_hold_much_the_same_of_every_class():
    counts = counts_of(25)
    folds = choose_folds(counts, 5, seed=0)
    for name, most in (("", 3), ("car", 0), ("ship", 0)):
        sums = Counter()
        for group, fold in folds.items():
            sums[fold] += counts[group][name]
        assert len(sums) == 5
        assert max(sums.values()) - min(sums.values()) <= most, name


def test_folds_depend_on_the_seed_and_not_on_the_order():
    counts = counts_of(20)
    backwards = dict(reversed(counts.items()))
    assert choose_folds(counts, 4, seed=1) == choose_folds(backwards, 4, seed=1)
    assert choose_folds(counts, 4, seed=1) != choose_folds(counts, 4, seed=2)


def test_fewer_images_than_folds_are_refused():
    with pytest.raises(DataError, match=r"2 images for 3 folds \(i0, i1\)"):
        choose_folds(counts_of(2), 3, seed=0)


def test_an_export_gives_the_annotations_made_for_it_and_whole_images(shared_dir):
    root = shared_dir / "data" / "real" / "playground_format"
    issues = []
    annotations, split = make_csv_pair(root, 4, 0, ["Partially Hidden"], issues)
    assert annotations.to_csv(index=False) == (root / "annotations.csv").read_text("utf-8")
    expected = pd.read_csv(root / "split.csv").drop(columns="split")
    pd.testing.assert_frame_equal(split.drop(columns="split").astype("str"), expected.astype("str"))
    assert split.groupby("image_id")["split"].nunique().max() == 1
    assert set(split["split"]) == {0, 1, 2, 3}
    assert issues == []


def test_tile_with_a_broken_label_file_is_left_out_and_named(shared_dir, tmp_path):
    shutil.copytree(shared_dir / "data" / "real" / "playground_format", tmp_path / "root")
    (broken, *_) = sorted((tmp_path / "root").rglob("labels/*/*.json"))
    broken.write_text("{")
    issues = []
    annotations, split = make_csv_pair(tmp_path / "root", 3, 0, [], issues)
    assert len(split) == 14
    assert broken.stem not in set(split["tile_id"]) | set(annotations["tile_id"])
    (issue,) = issues
    assert (issue["file"], issue["kind"]) == (
        broken.relative_to(tmp_path / "root").as_posix(), "broken_label_file",
    )  # fmt: skip


def test_the_command_writes_both_files_once(shared_dir, tmp_path):
    root = shared_dir / "data" / "real" / "playground_format"
    command = ["airbus-csv", str(root), "--folds", "3", "--output", str(tmp_path)]
    first = CliRunner().invoke(cli, command)
    assert first.exit_code == 0, first.output
    assert "280 objects on 15 tiles" in first.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["annotations.csv", "split.csv"]
    again = CliRunner().invoke(cli, command)
    assert again.exit_code == 1
    assert "there already; overwrite with --force" in again.output
    assert CliRunner().invoke(cli, [*command, "--force"]).exit_code == 0
