"""Inputs as users have them (shared cases): reading, pixels, splitting, tiling and classes.

Each case is read as the pipeline does it. ``values`` of its ``case.json`` are asserted by one
function a key, and the sentence in ``expected`` by the test that names the case. Cases in other
formats than DOTA are not here.
"""

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from obbflow.config import DatasetSection, TilingSection, fill_sections
from obbflow.data.checks import check_annotations, corners_of
from obbflow.data.class_map import count_objects, map_classes
from obbflow.data.class_weights import CLIP, weigh_classes
from obbflow.data.formats import read_data_set
from obbflow.data.images import decode_image, open_image
from obbflow.data.tile_store import tile_data_set
from obbflow.errors import ConfigError, DataError
from obbflow.geometry import qbox_to_rbox

LOUD = ("warning", "error")
INGEST = {
    "ingest-awkward-names": {},
    "ingest-bad-line-formats": {"warned": [4, 5, 6, 7]},
    "ingest-bowtie": {"warned": [3]},
    "ingest-class-with-blank": {},
    "ingest-crlf-tabs-blank-lines": {},
    "ingest-duplicate-lines": {"warned": [5]},
    "ingest-header-none": {},
    "ingest-header-only": {},
    "ingest-header-two-lines": {},
    "ingest-image-without-label": {"warned": [None]},
    "ingest-mixed-extensions": {},
    "ingest-no-difficult-column": {},
    "ingest-repeated-point-triangle": {},
    "ingest-vertices-outside": {"warned": [4]},
    "ingest-winding-and-start": {"warned": [4, 5, 6, 7, 8, 9, 10]},
    "ingest-zero-area": {"warned": [4]},
    "ops-blank-and-nonascii-root": {},
    "pixels-4band-tiff": {},
    "pixels-cmyk-jpeg": {},
    "pixels-exif-rotated-jpeg": {},
    "pixels-gray16-tiff": {},
    "pixels-gray8-png": {},
    "pixels-palette-png": {},
    "pixels-rgba-png": {},
    "pixels-truncated-png": {"warned": [None]},
    "tile-huge-179mpx": {},
}
TILE = [
    "tile-background-only",
    "tile-exactly-tile-size",
    "tile-image-smaller-than-tile",
    "tile-object-in-overlap",
    "tile-object-larger-than-tile",
    "tile-truncated-keeps-angle",
]


class Case:
    """A case's folder, its ``case.json``, and what the pipeline makes of it."""

    def __init__(self, folder):
        self.root = folder
        self.content = json.loads((folder / "case.json").read_text(encoding="utf-8"))
        self.values = self.content.get("values", {})
        self.params = self.content.get("params", {})
        if folder.name == "ops-blank-and-nonascii-root":
            self.root = next((folder / "my data (1)").iterdir())

    def read(self, **settings):
        dataset = DatasetSection(
            data_root=self.root, val_fraction=self.params.get("val_fraction", 0.2)
        )
        return read_data_set(self.root, dataset, settings.get("seed", 0))

    def dataset(self, **keys):
        return DatasetSection(
            **{
                "data_root": self.root,
                "difficult_strategy": "keep",
                "overlap": self.params.get("overlap", 0),
                **keys,
            }
        )

    def check(self, **keys):
        """Return images, annotations and issues after all checks."""
        data = self.read()
        return data.images, *check_annotations(
            data.images, data.annotations, data.issues, self.dataset(**keys)
        )

    def tile(self, store, dataset=None, **tiling):
        images, annotations, _ = self.check(**(dataset or {}))
        section = TilingSection(
            tile_size=self.params["tile_size"],
            min_visible=self.params.get("min_visible", 0.7),
            num_workers=1,
            **tiling,
        )
        return tile_data_set(images, annotations, self.dataset(), section, store)


@pytest.fixture
def case(shared_dir):
    return lambda name: Case(shared_dir / "cases" / name)


@pytest.mark.parametrize("name", INGEST)
def test_case_is_read_and_checked(case, name):
    images, annotations, issues = case(name).check()
    values = case(name).values
    for key in ("images", "images_usable"):
        assert len(images) == values.get(key, len(images)), key
    if name == "ingest-winding-and-start":
        assert len(annotations) == 1  # seven of eight are the same corners again
    assert len(annotations) == values.get("objects", len(annotations))
    if "per_class" in values:
        assert annotations["class_name"].value_counts().to_dict() == values["per_class"]
    if "dropped" in values:
        assert issues["action"].eq("dropped").sum() == values["dropped"]
    loud = issues[issues["severity"].isin(LOUD)]
    lines = [None if pd.isna(line) else line for line in loud["line"]]
    assert lines == INGEST[name].get("warned", [])
    _check_rboxes(annotations, values)


def _check_rboxes(annotations, values):
    """Compare boxes: 0.05 px and 0.2 degrees, which labels with one decimal allow."""
    rboxes = qbox_to_rbox(torch.from_numpy(corners_of(annotations).reshape(-1, 8))).numpy()
    for expected, (cx, cy, w, h, angle) in zip(values.get("rbox", []), rboxes, strict=False):
        assert (cx, cy) == pytest.approx((expected["cx"], expected["cy"]), abs=0.05)
        assert (w, h) == pytest.approx((expected["long"], expected["short"]), abs=0.05)
        assert math.degrees(angle) % 180 == pytest.approx(expected["angle_deg"], abs=0.2)
    if "rbox_area_between" in values:
        low, high = values["rbox_area_between"]
        assert low <= rboxes[0, 2] * rboxes[0, 3] <= high


def test_class_names_with_a_blank_are_kept(case):
    _, annotations, _ = case("ingest-class-with-blank").check()
    found = dict(zip(annotations["class_name"], annotations["difficult"], strict=True))
    assert found == {"storage tank": False, "large vehicle": True, "plane": False}


def test_difficulty_is_read_and_absent_means_none(case):
    _, annotations, _ = case("ingest-header-two-lines").check()
    assert annotations.loc[annotations["difficult"], "class_name"].tolist() == ["storage-tank"]
    _, annotations, _ = case("ingest-no-difficult-column").check()
    assert not annotations["difficult"].any()


def test_duplicate_names_both_lines(case):
    _, _, issues = case("ingest-duplicate-lines").check()
    assert issues["line"].tolist() == [5]
    assert "line 3 already" in issues["message"].iloc[0]
    assert issues["file"].tolist() == ["labelTxt/P0001.txt"]


def test_half_outside_object_keeps_its_coordinates(case):
    _, annotations, _ = case("ingest-vertices-outside").check()
    assert corners_of(annotations)[..., 0].min() == pytest.approx(-31.6)


def test_normalised_coordinates_are_refused(case):
    with pytest.raises(DataError, match=r"P0001\.txt: all coordinates lie in 0\.\.1"):
        case("ingest-normalised-coords").read()


def test_two_images_of_one_stem_are_refused_by_name(case):
    with pytest.raises(DataError, match=r"P0001\.jpg and P0001\.png"):
        case("ingest-same-stem-twice").read()


def test_unknown_class_is_refused_with_file_line_and_count(case):
    unknown = case("ingest-unknown-class")
    with pytest.raises(DataError, match=r"labelTxt/P0001\.txt:4: class 'hangar'.*class: 1\)"):
        unknown.check(allowed_classes=tuple(unknown.params["classes"]))


def test_awkward_names_have_tiles_that_map_back_to_their_image(case, tmp_path):
    tiled = case("ingest-awkward-names").tile(tmp_path)
    index = tiled.tile_index
    assert index["image_id"].nunique() == 5
    assert index["path"].is_unique
    images = case("ingest-awkward-names").read().images.set_index("image_id")
    for row in index.itertuples():
        source = decode_image(images.loc[row.image_id, "path"])
        tile = decode_image(row.path)
        part = source[row.y : row.y + row.height, row.x : row.x + row.width]
        np.testing.assert_array_equal(tile[: row.height, : row.width], part)
    assert tiled.tile_annotations.drop_duplicates("object_id").shape[0] == 15


@pytest.mark.parametrize("name", [name for name in INGEST if name.startswith("pixels-")])
def test_pixels_become_three_channels_of_8_bits(case, name):
    folder = case(name).root
    images, _, _ = case(name).check()
    for row in images.itertuples():
        pixels = decode_image(row.path)
        assert pixels.dtype == np.uint8
        assert pixels.shape == (row.height, row.width, 3)
        limit = {"pixels-cmyk-jpeg": 25, "pixels-palette-png": 6}.get(name)
        if limit is not None:
            reference = np.asarray(Image.open(folder / "reference.png").convert("RGB"), dtype=int)
            assert np.abs(pixels - reference).mean() < limit


def test_gray_pixels_are_three_equal_channels(case):
    images, _, _ = case("pixels-gray8-png").check()
    pixels = decode_image(images["path"].iloc[0])
    assert (pixels == pixels[..., :1]).all()
    assert pixels.std() > 10


def test_four_bands_give_the_first_three(case):
    images, _, _ = case("pixels-4band-tiff").check()
    assert images["bands"].tolist() == [4]
    path = images["path"].iloc[0]
    stored = _read_raw_tiff(path)
    np.testing.assert_array_equal(decode_image(path), stored[..., :3])


def _read_raw_tiff(path):
    """Return the samples of a deflated, pixel-interleaved TIFF, read without Pillow's modes."""
    with Image.open(path) as image:
        tags = dict(image.tag_v2)
    assert (tags[259], tags.get(317, 1), tags[284]) == (8, 1, 1)  # deflate, no predictor
    content = Path(path).read_bytes()
    pairs = zip(np.atleast_1d(tags[273]), np.atleast_1d(tags[279]), strict=True)
    samples = b"".join(zlib.decompress(content[start : start + size]) for start, size in pairs)
    return np.frombuffer(samples, dtype=np.uint8).reshape(tags[257], tags[256], tags[277])


def test_16_bit_objects_stand_out(case):
    images, annotations, _ = case("pixels-gray16-tiff").check()
    with open_image(images["path"].iloc[0]) as source:
        pixels = source.read(0, 0, source.width, source.height)[..., 0].astype(float)
        value_range = source.value_range
    background = np.median(pixels)
    for corners in corners_of(annotations):
        x, y = corners.mean(axis=0).astype(int)
        assert abs(pixels[y - 2 : y + 3, x - 2 : x + 3].mean() - background) >= 30
    assert 0 <= value_range[0] < value_range[1] <= 2047


def test_exif_rotated_boxes_lie_on_the_objects(case):
    images, annotations, _ = case("pixels-exif-rotated-jpeg").check()
    assert images[["width", "height"]].values.tolist() == [[240, 160]]
    pixels = decode_image(images["path"].iloc[0]).mean(axis=2)
    outside = np.ones(pixels.shape, dtype=bool)
    rows, columns = np.mgrid[: pixels.shape[0], : pixels.shape[1]] + 0.5
    for cx, cy, w, h, angle in qbox_to_rbox(
        torch.from_numpy(corners_of(annotations).reshape(-1, 8))
    ).numpy():
        along = (columns - cx) * math.cos(angle) + (rows - cy) * math.sin(angle)
        across = (rows - cy) * math.cos(angle) - (columns - cx) * math.sin(angle)
        inside = (np.abs(along) < w / 2) & (np.abs(across) < h / 2)
        assert pixels[inside].mean() > 180
        outside &= ~inside
    assert pixels[outside].mean() < 140


def test_truncated_image_is_named(case):
    _, _, issues = case("pixels-truncated-png").check()
    assert issues["file"].tolist() == ["images/P0002.png"]
    assert issues["kind"].tolist() == ["broken_image"]


def test_split_is_by_scene_and_the_same_for_a_seed(case, tmp_path, caplog):
    scenes = case("ops-split-by-scene")
    with caplog.at_level("INFO"):
        images = scenes.read().images
    assert len(images) == scenes.values["scenes"]
    assert images["split"].value_counts().to_dict() == {"train": 4, "val": 2}
    for image_id in images.loc[images["split"] == "val", "image_id"]:
        assert image_id in caplog.text
    assert images.equals(scenes.read().images)
    index = scenes.tile(tmp_path).tile_index
    assert index.groupby("image_id")["split"].nunique().max() == 1
    assert index["image_id"].nunique() == 6


@pytest.mark.parametrize("name", TILE)
def test_windows_and_visible_shares(case, tmp_path, name):
    tile_case = case(name)
    tiled = tile_case.tile(tmp_path)
    index = tiled.tile_index.set_index("tile_id")
    assert index[["x", "y"]].values.tolist() == tile_case.values["windows_xy"]
    shares = tile_case.values.get("visible_fraction", [])
    assert len(tiled.tile_annotations) == len(shares)
    for expected in shares:
        x, y = expected["xy"]
        tile_id = index.index[(index["x"] == x) & (index["y"] == y)].item()
        row = tiled.tile_annotations.set_index(["tile_id", "object_id"]).loc[
            (tile_id, expected["object"])
        ]
        # Fractions are written with three or four decimals.
        assert row["iof"] == pytest.approx(expected["fraction"], abs=6e-4)
        assert row["ignore"] == (expected["fraction"] < 0.7)


def test_background_tiles_can_be_left_out(case, tmp_path, caplog):
    with caplog.at_level("INFO"):
        tiled = case("tile-background-only").tile(tmp_path, keep_empty=0.0)
    assert tiled.tile_index.empty
    assert "Left out 9 training tiles without objects" in caplog.messages


def test_object_in_the_overlap_is_shifted_and_counted_once(case, tmp_path):
    overlap = case("tile-object-in-overlap")
    tiled = overlap.tile(tmp_path)
    cx = tiled.tile_annotations["cx"].tolist()
    assert cx[0] - cx[1] == pytest.approx(192)
    assert len(tiled.tile_annotations) == overlap.values["rows_over_tiles"]
    counts = count_objects(tiled.tile_index, tiled.tile_annotations, "train")
    assert counts.sum() == overlap.values["objects_over_scenes"]


def test_object_larger_than_every_tile_is_named(case, tmp_path, caplog):
    case("tile-object-larger-than-tile").tile(tmp_path)
    assert "ignore regions only: 1 bridge" in caplog.text


def test_small_image_keeps_its_coordinates(case, tmp_path):
    small = case("tile-image-smaller-than-tile")
    _, annotations, _ = small.check()
    tiled = small.tile(tmp_path)
    expected = qbox_to_rbox(torch.from_numpy(corners_of(annotations).reshape(-1, 8))).numpy()
    found = tiled.tile_annotations[["cx", "cy", "w", "h", "angle"]].to_numpy()
    np.testing.assert_array_equal(found, expected)
    assert tiled.tile_index[["width", "height"]].values.tolist() == [[100, 80]]


def test_truncated_object_keeps_its_angle(case, tmp_path):
    tiled = case("tile-truncated-keeps-angle").tile(tmp_path)
    (angle,) = np.degrees(tiled.tile_annotations["angle"])
    assert angle == pytest.approx(20, abs=0.2)  # corners are written with one decimal


def test_overlap_of_a_whole_tile_is_refused_with_both_values(case):
    params = case("tile-overlap-not-smaller-than-tile").params
    with pytest.raises(ConfigError, match=r"overlap: must be smaller .* 256 and 256"):
        fill_sections(
            {
                "dataset": {"format": "synthetic", "overlap": params["overlap"]},
                "tiling": {"tile_size": params["tile_size"]},
            }
        )


def test_scenes_of_one_stem_in_both_splits_lie_side_by_side(case, tmp_path):
    twice = case("tile-same-stem-in-two-splits")
    tiled = twice.tile(tmp_path)
    for split in ("train", "val"):
        counts = count_objects(tiled.tile_index, tiled.tile_annotations, split)
        assert counts.sum() == twice.values[f"{split}_objects"]
    assert tiled.tile_index["path"].is_unique


def test_huge_image_is_tiled_without_a_limit(case, tmp_path, caplog):
    """Two of its 289 tiles are compared; warnings are errors here, so none was raised."""
    huge = case("tile-huge-179mpx")
    tiled = huge.tile(tmp_path, image_format="jpg", jpeg_quality=50)
    assert tiled.report.n_tiles == 289
    objects = tiled.tile_annotations.loc[~tiled.tile_annotations["ignore"], "object_id"]
    assert objects.nunique() == huge.values["objects"]
    warned = [message for message in caplog.messages if "megapixels" in message]
    assert len(warned) == 1
    assert f"{huge.values['megapixels']} megapixels" in warned[0]


def test_imbalanced_classes_get_bounded_weights(case):
    imbalanced = case("classes-imbalance-980-20-1")
    _, annotations, _ = imbalanced.check()
    assert annotations["class_name"].value_counts().to_dict() == imbalanced.values["per_class"]
    counts = annotations["class_name"].value_counts()
    class_map = {name: number for number, name in enumerate(sorted(counts.index), start=1)}
    for method in ("sqrt", "inv_freq", "effective_num", "log_inv_freq"):
        table = weigh_classes(counts, class_map, method=method, beta=0.9999)
        table = table.set_index("class_name").loc[["small-vehicle", "ship", "helicopter"]]
        weights = table["weight"]
        assert np.isfinite(weights).all()
        assert weights.min() > 0
        assert (table["raw"].diff().dropna() > 0).all(), method
        assert (weights.diff().dropna() >= 0).all(), method  # two may be clipped alike
        assert method != "sqrt" or (weights.diff().dropna() > 0).all()
        assert weights.max() / weights.min() <= CLIP[1] / CLIP[0] + 1e-9


def test_classes_are_merged_and_ignored_ones_counted(case):
    merge = case("classes-map-merge-and-ignore")
    _, annotations, issues = merge.check(
        map_labels=merge.params["class_map"], ignore_labels=tuple(merge.params["ignore"])
    )
    assert annotations["class_name"].value_counts().to_dict() == merge.values["per_class"]
    (issue,) = issues.to_dict("records")
    assert issue["message"] == "objects of class 'roundabout' left out by dataset.ignore_labels: 1"


def test_class_only_in_val_is_warned_about_before_training(case, tmp_path, caplog):
    only = case("classes-only-in-val")
    only.params |= {"tile_size": 256}
    tiled = only.tile(tmp_path)
    for split in ("train", "val"):
        counts = count_objects(tiled.tile_index, tiled.tile_annotations, split)
        assert counts.to_dict() == only.values[split]
    assert map_classes(tiled.tile_index, tiled.tile_annotations, "x") == {"plane": 1, "ship": 2}
    assert "'helicopter' is only in validation (train 0, val 1)" in caplog.text


def test_class_ids_do_not_depend_on_the_order_of_files(case, tmp_path):
    stable = case("classes-order-stable")
    _, annotations, _ = stable.check()
    assert annotations["class_name"].value_counts().to_dict() == stable.values["per_class"]
    stable.params |= {"tile_size": 256}
    tiled = stable.tile(tmp_path)
    index = tiled.tile_index.assign(split="train")
    expected = {"plane": 1, "ship": 2, "storage-tank": 3}
    for order in (index, index.iloc[::-1]):
        assert map_classes(order, tiled.tile_annotations.iloc[::-1], "x") == expected


def test_single_class_is_one_class(case, tmp_path):
    single = case("classes-single")
    single.params |= {"tile_size": 256}
    tiled = single.tile(tmp_path)
    class_map = map_classes(tiled.tile_index, tiled.tile_annotations, "x")
    assert list(class_map) == single.values["classes"]
