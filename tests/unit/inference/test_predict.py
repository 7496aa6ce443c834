import numpy as np
import pandas as pd
import pytest
import rasterio
import torch
from PIL import Image
from torch import nn

from obbflow.config import PreprocessingSection
from obbflow.errors import DataError
from obbflow.inference import Detector, WindowSettings, predict_images
from obbflow.inference.predict import is_central, list_windows
from obbflow.inference.tables import PREDICTION_IMAGES
from obbflow.tables import RBOX, make_table

CPU = torch.device("cpu")


class StubModel(nn.Module):
    """Finds the same boxes in every window, and remembers what it was shown."""

    def __init__(self, rboxes, scores, labels):
        super().__init__()
        self.found = {
            "rboxes": torch.tensor(rboxes, dtype=torch.float32).reshape(-1, 5),
            "scores": torch.tensor(scores, dtype=torch.float32),
            "labels": torch.tensor(labels, dtype=torch.int64),
        }
        self.batches = []

    def forward(self, images):
        self.batches.append([tuple(image.shape) for image in images])
        self.colours = [image.mean(dim=(1, 2)) for image in images]
        return [dict(self.found) for _ in images]


def stub(
    rboxes=((10, 20, 8, 4, 0.5),), scores=(0.9,), labels=(1,), margin=0.0, target=64, **pixels
):
    settings = WindowSettings(
        tile_size=64,
        overlap=16,
        ignore_margin=margin,
        score_thresholds={"plane": 0.5, "ship": 0.3},
        nms_iou_threshold=0.5,
        nms_class_agnostic=False,
        **pixels,
    )
    preprocessing = PreprocessingSection(resize_mode="keep_ratio", target_size=(target, target))
    return Detector(StubModel(rboxes, scores, labels), preprocessing, settings)


@pytest.fixture
def images(tmp_path) -> pd.DataFrame:
    """One image of 2 x 2 windows (the last flush with the border) and a small one."""
    rows = []
    for name, (width, height) in {"large": (100, 80), "small": (40, 30)}.items():
        path = tmp_path / f"{name}.png"
        Image.fromarray(np.full((height, width, 3), 128, dtype=np.uint8)).save(path)
        rows.append((name, str(path), width, height))
    return make_table(rows, PREDICTION_IMAGES)


def test_boxes_of_windows_come_in_px_of_the_image(images):
    detections = predict_images(stub(), images, device=CPU)

    assert detections["image_id"].tolist() == ["large"] * 4 + ["small"]
    corners = [(0, 0), (36, 0), (0, 16), (36, 16), (0, 0)]
    assert detections[["window_x", "window_y"]].to_numpy().tolist() == [list(c) for c in corners]
    centres = [[10 + x, 20 + y] for x, y in corners]
    assert detections[["cx", "cy"]].to_numpy().tolist() == centres
    assert detections[["w", "h", "angle"]].drop_duplicates().to_numpy().tolist() == [[8, 4, 0.5]]


def test_a_small_image_is_one_window_of_its_own_size(images):
    detector = stub()
    detections = predict_images(detector, images.iloc[1:], device=CPU)

    assert detector.model.batches == [[(3, 30, 40)]]
    assert detections[["window_width", "window_height"]].to_numpy().tolist() == [[40, 30]]


@pytest.mark.parametrize("target", [128, 32], ids=["twice as large", "half as large"])
def test_windows_are_scaled_as_in_training_and_boxes_back(images, target):
    factor = target / 64
    box = (10 * factor, 20 * factor, 8 * factor, 4 * factor, 0.5)
    detector = stub([box], target=target)

    detections = predict_images(detector, images, device=CPU)

    assert detector.model.batches[0] == [(3, target, target)]
    expected = predict_images(stub(), images, device=CPU)
    # float32 coordinates of the model
    np.testing.assert_allclose(detections[list(RBOX)], expected[list(RBOX)], atol=1e-4)


def test_pixels_are_normalised(images):
    detector = stub()
    predict_images(detector, images.iloc[1:], device=CPU)

    section = detector.preprocessing
    expected = (128 / 255 - torch.tensor(section.normalize_mean)) / torch.tensor(
        section.normalize_std
    )
    torch.testing.assert_close(detector.model.colours[0], expected, atol=1e-4, rtol=0)


def test_pixels_are_made_as_those_that_were_trained_on(tmp_path):
    samples = np.linspace(0, 1000, 4 * 30 * 40).reshape(4, 30, 40).astype("uint16")
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "width": 40, "height": 30, "count": 4, "dtype": "uint16"}
    with rasterio.open(path, "w", **profile) as file:
        file.write(samples)
    images = make_table([("a", str(path), 40, 30)], PREDICTION_IMAGES)

    detector = stub(bands=(4, 1, 1), stretch_percentiles=(0, 100))
    predict_images(detector, images, device=CPU)

    section = detector.preprocessing
    mean, std = torch.tensor(section.normalize_mean), torch.tensor(section.normalize_std)
    colours = detector.model.colours[0] * std + mean
    # band 1 holds 0 to 250, band 4 holds 750 to 1000
    torch.testing.assert_close(colours, torch.tensor([0.875, 0.125, 0.125]), atol=1e-3, rtol=0)


def test_only_windows_of_one_size_share_a_batch(images):
    detector = stub()
    together = predict_images(detector, images, device=CPU, batch_size=3)

    assert [len(batch) for batch in detector.model.batches] == [3, 1, 1]
    pd.testing.assert_frame_equal(together, predict_images(stub(), images, device=CPU))


def test_each_class_has_its_own_threshold_and_the_best_comes_first(images):
    boxes = [(10, 10, 4, 2, 0)] * 4
    detector = stub(boxes, scores=(0.31, 0.49, 0.5, 0.29), labels=(2, 1, 1, 2))

    detections = predict_images(detector, images.iloc[1:], device=CPU)

    assert detections["class_name"].tolist() == ["plane", "ship"]
    assert detections["score"].tolist() == pytest.approx([0.5, 0.31])


def test_a_box_in_another_form_becomes_le90(images):
    detections = predict_images(stub([(10, 10, 2, 6, 0.5)]), images.iloc[1:], device=CPU)

    box = detections[list(RBOX)].to_numpy()[0]
    assert box[2:4].tolist() == [6, 2]
    assert box[4] == pytest.approx(0.5 - np.pi / 2)


def test_no_detection_gives_an_empty_table(images):
    detections = predict_images(stub([], [], []), images, device=CPU)

    assert len(detections) == 0
    assert {"image_id", "window_x", "score"} <= set(detections.columns)


def test_the_margin_counts_only_at_sides_with_a_neighbour():
    left, right = list_windows("a", width=100, height=64, tile_size=64, overlap=28)
    boxes = torch.tensor([[2.0, 2.0, 4, 2, 0], [62.0, 62.0, 4, 2, 0], [32.0, 2.0, 4, 2, 0]])

    assert is_central(boxes, left, margin=8).tolist() == [True, False, True]
    assert is_central(boxes, right, margin=8).tolist() == [False, True, True]
    assert is_central(boxes, left, margin=0).tolist() == [True, True, True]


def test_no_object_is_lost_between_two_margins():
    windows = list_windows("a", width=200, height=150, tile_size=64, overlap=16)
    for x, y in np.random.default_rng(0).uniform((0, 0), (200, 150), (300, 2)):
        takers = [
            window
            for window in windows
            if window.x <= x <= window.x + window.width
            and window.y <= y <= window.y + window.height
            and is_central(torch.tensor([[x - window.x, y - window.y, 4, 2, 0]]), window, 8).item()
        ]
        assert takers, (x, y)


def test_detections_in_the_margin_are_left_to_the_neighbour(images):
    found = predict_images(stub([(60, 10, 8, 4, 0)], margin=8), images, device=CPU)

    places = found[["image_id", "window_x", "window_y"]].to_numpy().tolist()
    # In the left windows the box lies at the border with the right ones.
    assert places == [["large", 36, 0], ["large", 36, 16], ["small", 0, 0]]


def test_an_image_that_changed_meanwhile_is_refused(images):
    images.loc[1, "width"] = 41
    with pytest.raises(DataError, match=r"small\.png: 40 x 30 px, but 41 x 30"):
        predict_images(stub(), images, device=CPU)


def test_an_error_of_the_model_names_the_windows(images):
    class Failing(nn.Module):
        def forward(self, _images):
            raise RuntimeError("out of memory")

    detector = stub()
    failing = Detector(Failing(), detector.preprocessing, detector.settings)
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        predict_images(failing, images, device=CPU, batch_size=2)
    assert "large at 0,0, large at 36,0" in caught.value.__notes__[0]
