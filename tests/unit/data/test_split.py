import pytest

from obbflow.data.split import choose_val_scenes

SCENES = [f"P{number:04d}" for number in range(40)]


def test_share_of_scenes_is_chosen():
    assert len(choose_val_scenes(SCENES, 0.25, seed=0)) == 10


def test_order_of_files_does_not_matter_and_the_seed_does():
    chosen = choose_val_scenes(SCENES, 0.25, seed=0)
    assert choose_val_scenes(SCENES[::-1], 0.25, seed=0) == chosen
    assert choose_val_scenes(SCENES, 0.25, seed=1) != chosen


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2)]
)
def test_both_sides_get_a_scene(count, fraction, expected):
    assert len(choose_val_scenes(SCENES[:count], fraction, seed=0)) == expected


@pytest.mark.parametrize("count", [0, 1])
def test_single_scene_is_trained_on(count):
    assert choose_val_scenes(SCENES[:count], 0.5, seed=0) == frozenset()


def test_new_scene_moves_at_most_one_other():
    before = choose_val_scenes(SCENES, 0.25, seed=3)
    after = choose_val_scenes([*SCENES, "P9999"], 0.25, seed=3)
    assert len(before - after) <= 1
