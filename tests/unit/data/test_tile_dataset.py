import logging
import pickle

import numpy as np
import pytest
import torch
from PIL import Image

from obbflow.config import DatasetSection, PreprocessingSection
from obbflow.data.tile_dataset import TileDataset
from obbflow.data.transforms import EvalTransform, TrainTransform
from obbflow.errors import DataError
from obbflow.tables import GROUND_TRUTH, TILE_ANNOTATIONS, TILE_INDEX, check_table, make_table

CLASS_MAP = {"ship": 2, "plane": 1}
SIZE = 32
PREPROCESSING = PreprocessingSection(target_size=(SIZE, SIZE), enable_random_rotate=True)
# tile_id, split, content width, content height
TILES = [
    ("a0", "train", SIZE, SIZE),
    ("a1", "train", SIZE, SIZE),
    ("a2", "train", 20, 12),
    ("b0", "val", SIZE, SIZE),
    ("b1", "val", SIZE, SIZE),
]
# tile_id, class_name, cx, cy, w, h, angle, difficult, ignore, lookalike, iof, object_id
BOXES = [
    ("b0", "ship", 10.0, 12.0, 8.0, 4.0, 0.3, True, False, False, 1.0, 5),
    ("a0", "ship", 16.0, 12.0, 8.0, 4.0, 0.5, False, False, False, 1.0, 0),
    ("a0", "plane", 20.0, 20.0, 6.0, 5.0, -0.5, False, False, False, 0.9, 1),
    ("a0", "plane", 30.0, 30.0, 9.0, 5.0, 0.0, True, True, False, 0.4, 2),
    ("a2", "plane", 10.0, 6.0, 6.0, 5.0, 0.0, False, False, False, 1.0, 3),
    ("a1", "ship", 31.0, 12.0, 8.0, 4.0, 0.0, False, True, False, 0.5, 4),
    ("b0", "train-car", 5.0, 5.0, 4.0, 2.0, 0.0, False, False, False, 1.0, 6),
]
LOOKALIKES = [
    ("a1", "buoy", 7.0, 9.0, 4.0, 3.0, 0.2, True, False, True, 0.3, 7),
    ("b0", "buoy", 25.0, 9.0, 4.0, 3.0, 0.2, False, False, True, 1.0, 8),
]


@pytest.fixture
def tables(tmp_path):
    """Tile files of random pixels, and their two tables."""
    rng = np.random.default_rng(0)
    rows = []
    for tile_id, split, width, height in TILES:
        pixels = np.zeros((SIZE, SIZE, 3), dtype=np.uint8)
        pixels[:height, :width] = rng.integers(1, 256, (height, width, 3))
        path = tmp_path / f"{tile_id}.png"
        Image.fromarray(pixels).save(path)
        rows.append((tile_id, "image", split, 0, 0, width, height, str(path), 0, 1.0))
    return make_table(rows, TILE_INDEX), make_table(BOXES, TILE_ANNOTATIONS)


def build(tables, split="train", *, transform=None, seed=0, cache_bytes=1 << 20, **settings):
    transform = transform or EvalTransform(PREPROCESSING)
    section = DatasetSection(format="synthetic", **settings)
    return TileDataset(
        *tables,
        CLASS_MAP,
        transform,
        split=split,
        dataset=section,
        seed=seed,
        cache_bytes=cache_bytes,
    )


def test_sample_holds_the_boxes_of_its_tile(tables):
    image, target = build(tables)[0, 0]
    assert image.shape == (3, SIZE, SIZE)
    assert image.dtype == torch.float32
    assert target["labels"].tolist() == [2, 1]
    assert target["rboxes"].tolist() == [[16, 12, 8, 4, 0.5], [20, 20, 6, 5, -0.5]]
    assert target["rboxes_ignore"].tolist() == [[30, 30, 9, 5, 0]]
    assert target["labels_ignore"].tolist() == [1]
    assert target["scale"].tolist() == [1, 1]
    assert target["index"].item() == 0


def test_sample_is_the_normalised_tile(tables):
    dataset = build(tables)
    mean, std = (
        torch.tensor(PREPROCESSING.normalize_mean),
        torch.tensor(PREPROCESSING.normalize_std),
    )
    restored = dataset[1, 0][0] * std[:, None, None] + mean[:, None, None]
    torch.testing.assert_close(restored * 255, dataset.tile_image(1).float(), atol=1e-3, rtol=0)
    with Image.open(tables[0]["path"][1]) as file:
        assert np.array_equal(dataset.tile_image(1).permute(1, 2, 0), file)


def test_tile_without_objects_gives_empty_boxes(tables):
    _, target = build(tables)[1, 0]
    assert target["rboxes"].shape == (0, 5)
    assert target["labels"].dtype == torch.int64
    assert target["rboxes_ignore"].tolist() == [[31, 12, 8, 4, 0]]


def test_tables_without_any_box_give_empty_boxes(tables):
    _, target = build((tables[0], tables[1].iloc[:0]))[0, 0]
    assert target["rboxes"].shape == target["rboxes_ignore"].shape == (0, 5)


def test_padding_of_the_tile_file_is_cut_off(tables):
    section = PreprocessingSection(resize_mode="keep_ratio", target_size=(SIZE, SIZE))
    dataset = build(tables, transform=EvalTransform(section))
    image, _ = dataset[2, 0]
    assert image.shape == (3, 12, 20)
    assert dataset.tile_image(2).min() >= 1  # the padding is 0


def test_padded_tile_is_scaled_like_the_others(tables):
    section = PreprocessingSection(target_size=(2 * SIZE, 2 * SIZE))
    image, target = build(tables, transform=EvalTransform(section))[2, 0]
    assert image.shape == (3, 2 * SIZE, 2 * SIZE)
    assert image[:, :24, :40].abs().amin() > 0
    assert image[:, 24:].abs().sum() == image[:, :, 40:].abs().sum() == 0
    assert target["scale"].tolist() == [2, 2]
    assert target["rboxes"].tolist() == [[20, 12, 12, 10, 0]]


def test_split_decides_the_tiles(tables):
    assert build(tables).tile_ids == ["a0", "a1", "a2"]
    assert build(tables, "val").tile_ids == ["b0", "b1"]
    assert len(build(tables, "val")) == 2


def test_class_names_are_in_id_order(tables):
    assert build(tables).class_names == ["plane", "ship"]


def test_class_that_training_lacks_is_left_out_with_a_warning(tables, caplog):
    with caplog.at_level(logging.WARNING):
        dataset = build(tables, "val")
    assert dataset[0, 0][1]["labels"].tolist() == [2]
    assert dataset.unmapped_classes == {"train-car": 1}
    assert dataset.ground_truth["class_name"].tolist() == ["ship"]
    assert [record.getMessage().endswith("train-car (1)") for record in caplog.records] == [True]
    assert build(tables).unmapped_classes == {}


def test_ground_truth_is_in_tile_pixels_and_marks_ignore_regions(tables):
    transform = EvalTransform(PreprocessingSection(target_size=(2 * SIZE, 2 * SIZE)))
    truth = build(tables, transform=transform).ground_truth
    check_table(truth, GROUND_TRUTH, "ground_truth")
    assert list(truth.columns) == list(GROUND_TRUTH)
    assert truth["image_id"].tolist() == ["a0", "a0", "a0", "a2", "a1"]
    assert truth["cx"].tolist() == [16, 20, 30, 10, 31]
    assert truth["difficult"].tolist() == [False, False, True, False, True]
    assert truth.index.tolist() == [0, 1, 2, 3, 4]


def test_difficult_object_that_was_kept_counts(tables):
    assert build(tables, "val").ground_truth["difficult"].tolist() == [False]


def test_lookalikes_are_in_targets_and_never_in_the_ground_truth(tables, caplog):
    index, boxes = tables
    more = (index, make_table([*BOXES, *LOOKALIKES], TILE_ANNOTATIONS))
    _, target = build(more)[1, 0]
    assert target["rboxes_lookalike"].tolist() == [pytest.approx([7, 9, 4, 3, 0.2])]
    assert target["rboxes"].shape == (0, 5)
    assert target["rboxes_ignore"].tolist() == [[31, 12, 8, 4, 0]]
    assert build(more)[0, 0][1]["rboxes_lookalike"].shape == (0, 5)
    # literally: a tile without an object is left out, whatever looks like one on it
    assert build(more, filter_empty_gt=True).tile_ids == ["a0", "a2"]
    for split in ("train", "val"):
        caplog.clear()
        dataset = build(more, split)
        expected = build((index, boxes), split)
        assert "buoy" not in caplog.text
        assert dataset.unmapped_classes == expected.unmapped_classes
        assert dataset.ground_truth.equals(expected.ground_truth)


# Which tiles


def test_empty_tiles_are_left_out_of_training_only(tables):
    assert build(tables, filter_empty_gt=True).tile_ids == ["a0", "a2"]
    assert build(tables, "val", filter_empty_gt=True).tile_ids == ["b0", "b1"]


def test_cap_takes_the_first_tiles_after_the_filter(tables):
    assert build(tables, max_train_samples=2).tile_ids == ["a0", "a1"]
    assert build(tables, max_train_samples=2, filter_empty_gt=True).tile_ids == ["a0", "a2"]
    capped = build(tables, "val", max_val_samples=1)
    assert capped.tile_ids == ["b0"]
    assert build(tables, "val", max_train_samples=1).tile_ids == ["b0", "b1"]
    assert set(build(tables, max_train_samples=1).ground_truth["image_id"]) == {"a0"}


def test_seeded_cap_chooses_by_seed_and_keeps_the_order(tables):
    chosen = {
        tuple(build(tables, max_train_samples=2, max_samples_shuffle_seed=seed).tile_ids)
        for seed in range(12)
    }
    assert chosen == {("a0", "a1"), ("a0", "a2"), ("a1", "a2")}
    again = [build(tables, max_train_samples=2, max_samples_shuffle_seed=4) for _ in range(2)]
    assert again[0].tile_ids == again[1].tile_ids


def test_training_without_a_tile_is_an_error(tables):
    with pytest.raises(DataError, match="no training tile is left"):
        build((tables[0].query("split == 'val'"), tables[1]))
    with pytest.raises(DataError, match=r"filter_empty_gt.*data_root"):
        build((tables[0], tables[1].iloc[:0]), filter_empty_gt=True)


def test_validation_may_be_empty(tables):
    dataset = build((tables[0].query("split == 'train'"), tables[1]), "val")
    assert len(dataset) == 0
    assert dataset.ground_truth.empty
    check_table(dataset.ground_truth, GROUND_TRUTH, "ground_truth")


# Randomness


def test_sample_depends_on_seed_epoch_and_index_alone(tables):
    transform = TrainTransform(PREPROCESSING, CLASS_MAP)
    dataset = build(tables, transform=transform, seed=7)
    other = build(tables, transform=transform, seed=7, cache_bytes=0)
    torch.manual_seed(1)
    first = [dataset[0, epoch] for epoch in range(4)]
    torch.manual_seed(2)
    for epoch in (3, 2, 1, 0):
        image, target = other[0, epoch]
        assert torch.equal(image, first[epoch][0])
        assert torch.equal(target["rboxes"], first[epoch][1]["rboxes"])
    assert len({image.sum().item() for image, _ in first}) > 1
    assert not torch.equal(build(tables, transform=transform, seed=8)[0, 1][0], first[1][0])


def test_global_random_stream_is_not_touched(tables):
    dataset = build(tables, transform=TrainTransform(PREPROCESSING, CLASS_MAP))
    state = torch.get_rng_state()
    dataset[0, 0]
    assert torch.equal(torch.get_rng_state(), state)


# Cache


def test_cached_tile_is_not_read_again_and_not_changed(tables):
    dataset = build(tables)
    before, _ = dataset[0, 0]
    before.zero_()
    dataset.tile_image(0).zero_()
    Image.new("RGB", (SIZE, SIZE)).save(tables[0]["path"][0])
    assert dataset[0, 0][0].abs().sum() > 0


def test_cache_stops_at_its_limit(tables):
    dataset = build(tables, cache_bytes=3 * SIZE * SIZE)  # one tile
    first, second = dataset[0, 0][0], dataset[1, 0][0]
    for row in (0, 1):
        Image.new("RGB", (SIZE, SIZE)).save(tables[0]["path"][row])
    assert torch.equal(dataset[0, 0][0], first)
    assert not torch.equal(dataset[1, 0][0], second)


def test_cache_does_not_travel_to_a_loading_process(tables):
    dataset = build(tables)
    empty = len(pickle.dumps(dataset))
    dataset[0, 0]
    assert len(pickle.dumps(dataset)) == empty
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy[0, 0][0], dataset[0, 0][0])


# Files that are not as they should be


def test_missing_tiles_are_named_at_once(tables, tmp_path):
    (tmp_path / "a1.png").unlink()
    with pytest.raises(DataError, match=r"1 of 3 tile files are missing: .*a1\.png.*Run the data"):
        build(tables)


def test_broken_tile_is_named(tables, tmp_path):
    path = tmp_path / "a1.png"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"a1\.png: the tile cannot be read .*Run the data"):
        build(tables)[1, 0]


def test_text_in_place_of_a_tile_is_named(tables, tmp_path):
    (tmp_path / "a1.png").write_text("not an image")
    with pytest.raises(DataError, match=r"a1\.png: the tile cannot be read"):
        build(tables)[1, 0]


def test_tile_smaller_than_the_index_says_is_named(tables, tmp_path):
    Image.new("RGB", (SIZE, 16)).save(tmp_path / "a1.png")
    with pytest.raises(DataError, match=r"a1\.png: the tile is 32 x 16 px, .* 32 x 32 px"):
        build(tables)[1, 0]


def test_grey_tile_becomes_rgb(tables, tmp_path):
    Image.new("L", (SIZE, SIZE), 77).save(tmp_path / "a1.png")
    assert build(tables).tile_image(1).unique().tolist() == [77]
