import pytest
from hypothesis import given
from hypothesis import strategies as st

from obbflow.data.split import choose_val_scenes

SCENES = [f"P{number:04d}" for number in range(40)]
SHOWN = st.dictionaries(st.sampled_from(SCENES), st.sets(st.sampled_from("abcdef")), min_size=2)


def choose(scenes, val_fraction, seed=0):
    """Return the choice among scenes that all show the same."""
    return choose_val_scenes({scene: ["ship"] for scene in scenes}, val_fraction, seed)


def in_both(classes_of, val):
    """Return the classes that train and val show."""
    train = set(classes_of) - val
    shown = [{name for scene in split for name in classes_of[scene]} for split in (train, val)]
    return shown[0] & shown[1]


def test_share_of_scenes_is_chosen():
    assert len(choose(SCENES, 0.25)) == 10


def test_order_of_files_does_not_matter_and_the_seed_does():
    chosen = choose(SCENES, 0.25)
    assert choose(SCENES[::-1], 0.25) == chosen
    assert choose(SCENES, 0.25, seed=1) != chosen


@pytest.mark.parametrize(
    ("count", "fraction", "expected"), [(2, 0.01, 1), (2, 0.99, 1), (3, 0.99, 2)]
)
def test_both_sides_get_a_scene(count, fraction, expected):
    assert len(choose(SCENES[:count], fraction)) == expected


@pytest.mark.parametrize("count", [0, 1])
def test_single_scene_is_trained_on(count):
    assert choose(SCENES[:count], 0.5) == frozenset()


def test_new_scene_moves_at_most_one_other():
    before = choose(SCENES, 0.25, seed=3)
    after = choose([*SCENES, "P9999"], 0.25, seed=3)
    assert len(before - after) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_class_of_two_scenes_is_in_both_splits_at_the_wanted_share(seed):
    classes_of = {scene: {"ship"} for scene in SCENES}
    for number, name in enumerate(["helipad", "airport", "crane"]):
        for scene in SCENES[2 * number : 2 * number + 2]:
            classes_of[scene] = {"ship", name}
    val = choose_val_scenes(classes_of, 0.2, seed)
    assert in_both(classes_of, val) == {"ship", "helipad", "airport", "crane"}
    assert len(val) == 8


@pytest.mark.parametrize("seed", range(8))
def test_class_of_a_single_scene_is_trained_on(seed):
    classes_of = {scene: {"ship"} for scene in SCENES[:5]} | {"P9999": {"ship", "helipad"}}
    val = choose_val_scenes(classes_of, 0.8, seed)
    assert len(val) == 5
    assert "P9999" not in val


def test_rare_classes_come_before_the_wanted_share():
    classes_of = {scene: {f"type {number % 10}"} for number, scene in enumerate(SCENES[:20])}
    val = choose_val_scenes(classes_of, 0.1, seed=0)
    assert len(in_both(classes_of, val)) == len(val) == 10


@given(st.lists(st.sampled_from("abcdef"), min_size=2, max_size=30), st.integers(0, 3))
def test_scenes_of_one_class_each_put_all_their_classes_into_both_splits(names, seed):
    classes_of = {f"P{number}": {name} for number, name in enumerate(names)}
    val = choose_val_scenes(classes_of, 0.3, seed)
    assert in_both(classes_of, val) == {name for name in names if names.count(name) > 1}


@given(SHOWN, st.floats(0.05, 0.95), st.integers(0, 3))
def test_choice_is_the_same_in_any_order_and_leaves_both_splits_a_scene(
    classes_of, val_fraction, seed
):
    val = choose_val_scenes(classes_of, val_fraction, seed)
    backwards = {scene: sorted(classes_of[scene]) for scene in reversed(classes_of)}
    assert choose_val_scenes(backwards, val_fraction, seed) == val
    assert 0 < len(val) < len(classes_of)
    assert val < set(classes_of)
