import math

import pandas as pd
import pytest
import torch
from torch import nn
from toy import CLASSES, ToyData, ToyDetector, toy_loader

from obbflow.config import EvaluationSection
from obbflow.tables import DETECTIONS, check_table
from obbflow.training import evaluate, predict_dataset
from obbflow.training.validate import score_detections

CPU = torch.device("cpu")


class Oracle(nn.Module):
    """Returns the truth of a data set, image by image, in px scaled by ``scale``."""

    def __init__(self, data: ToyData, scale: tuple[float, float] = (1.0, 1.0)) -> None:
        super().__init__()
        self.data, self.scale, self.calls = data, scale, 0

    def forward(self, images):
        found = []
        for image in images:
            self.calls += 1
            row = int((self.data.images == image).all(dim=(1, 2, 3)).nonzero()[0])
            factors = torch.tensor([self.scale[0], self.scale[1]] * 2 + [1.0])
            rboxes = (self.data.rboxes[row] * factors)[None]
            # A poor detection beside the good one, worst first.
            found.append(
                {
                    "rboxes": torch.cat([rboxes + 5, rboxes]),
                    "scores": torch.tensor([0.1, 0.9]),
                    "labels": self.data.labels[row].repeat(2),
                }
            )
        return found


class Silent(nn.Module):
    def forward(self, images):
        empty = torch.zeros(0)
        return [
            {"rboxes": torch.zeros(0, 5), "scores": empty, "labels": empty.long()} for _ in images
        ]


class Scaled(ToyData):
    def __getitem__(self, row):
        image, target = super().__getitem__(row)
        return image, {**target, "scale": torch.tensor([2.0, 0.5])}


def test_detections_are_named_ordered_and_typed():
    data = ToyData(5)
    table = predict_dataset(Oracle(data), toy_loader(data), data, CPU)
    check_table(table, DETECTIONS, "detections")
    assert table["image_id"].tolist() == [name for name in data.tile_ids for _ in range(2)]
    assert table["score"].tolist() == pytest.approx([0.9, 0.1] * 5)
    assert table["class_name"].iloc[0] == CLASSES[data.labels[0] - 1]


def test_boxes_come_back_in_the_pixels_of_the_tile():
    data = Scaled(4)
    detections = predict_dataset(Oracle(data, (2.0, 0.5)), toy_loader(data), data, CPU)
    best = detections[detections["score"] > 0.5]
    found = torch.tensor(best[["cx", "cy", "w", "h", "angle"]].to_numpy())
    torch.testing.assert_close(found.float(), data.rboxes, atol=1e-4, rtol=0)  # float32 input


def test_the_order_of_the_loader_does_not_matter():
    data = ToyData(7)
    torch.manual_seed(1)
    shuffled = predict_dataset(Oracle(data), toy_loader(data, shuffle=True), data, CPU)
    pd.testing.assert_frame_equal(
        shuffled, predict_dataset(Oracle(data), toy_loader(data), data, CPU)
    )


class Sizes(ToyData):
    """Images of three sizes in turn."""

    def __getitem__(self, row):
        image, target = super().__getitem__(row)
        return image[:, : 16 - 4 * (row % 3)], target


class Neighbours(nn.Module):
    """Finds a box as high as the highest image of its batch: what padding can do."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = []

    def forward(self, images):
        heights = [image.shape[1] for image in images]
        self.batches.append(heights)
        box = torch.tensor([[8.0, 8.0, 4.0 + max(heights), 4.0, 0.0]])
        return [
            {"rboxes": box, "scores": image.mean()[None], "labels": torch.ones(1).long()}
            for image in images
        ]


@pytest.mark.parametrize("batch_size", [2, 4, 8])
def test_detections_do_not_depend_on_the_batch(batch_size):
    data = Sizes(8)
    model, alone = Neighbours(), Neighbours()
    table = predict_dataset(model, toy_loader(data, batch_size=batch_size), data, CPU)
    expected = predict_dataset(alone, toy_loader(data, batch_size=1), data, CPU)
    pd.testing.assert_frame_equal(table, expected)
    assert table["w"].tolist() == [20.0 - 4 * (row % 3) for row in range(8)]
    assert all(len(set(heights)) == 1 for heights in model.batches)
    assert sum(len(heights) for heights in model.batches) == 8
    assert len(model.batches) == {2: 8, 4: 6, 8: 3}[batch_size]


def test_every_image_is_looked_at_once_and_the_mode_is_kept():
    data = ToyData(7)
    model = Oracle(data)
    model.train()
    evaluate(model, toy_loader(data))
    assert model.calls == 7
    assert model.training


def test_a_perfect_detector_scores_one():
    data = ToyData(6)
    metrics = evaluate(Oracle(data), toy_loader(data))
    assert set(metrics) == {"mAP", "AP50", "AP75", "AP50_95", "AP_plane", "AP_ship"}
    assert metrics["mAP"] == metrics["AP75"] == metrics["AP_ship"] == 1.0
    assert metrics["AP50_95"] == pytest.approx(1.0)


def test_a_silent_detector_scores_zero_and_has_a_typed_table():
    data = ToyData(4)
    check_table(predict_dataset(Silent(), toy_loader(data), data, CPU), DETECTIONS, "detections")
    assert evaluate(Silent(), toy_loader(data))["mAP"] == 0.0


def test_map_is_that_at_the_threshold_asked_for():
    data = ToyData(4)
    detections = predict_dataset(Oracle(data), toy_loader(data), data, CPU)
    # Moved by 2 of 8 px along the box: IoU 6 / 10.
    moved = detections.assign(cx=detections["cx"] + 2).loc[detections["score"] > 0.5]
    assert score_detections(moved, data, EvaluationSection(iou_threshold=0.55))["mAP"] == 1.0
    strict = score_detections(moved, data, EvaluationSection(iou_threshold=0.65))
    assert strict["mAP"] == 0.0
    assert strict["AP50"] == 1.0
    assert strict["AP50_95"] == pytest.approx(0.3)  # of ten thresholds 0.5, 0.55 and 0.6 are met


def test_what_cannot_be_computed_is_absent():
    data = ToyData(4)
    data.labels[:] = 1  # no ship
    metrics = evaluate(Oracle(data), toy_loader(data))
    assert "AP_ship" not in metrics
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_fault_in_a_batch_is_raised_and_names_the_tiles():
    class Broken(nn.Module):
        def forward(self, _images):
            raise RuntimeError("no luck")

    data = ToyData(4)
    with pytest.raises(RuntimeError, match="no luck") as caught:
        evaluate(Broken(), toy_loader(data))
    assert caught.value.__notes__ == ["while detecting objects in the tiles tile_0, tile_1"]


def test_left_out_and_repeated_tiles_are_noticed():
    data = ToyData(4)
    batches = list(toy_loader(data))
    with pytest.raises(ValueError, match="left out 2 tiles, the first is tile_2"):
        predict_dataset(Oracle(data), batches[:1], data, CPU)
    with pytest.raises(ValueError, match="gave tile tile_0 twice"):
        predict_dataset(Oracle(data), [*batches, batches[0]], data, CPU)


def test_gradients_are_not_recorded():
    data = ToyData(2)
    model = ToyDetector()
    predict_dataset(model, toy_loader(data), data, CPU)
    assert all(parameter.grad is None for parameter in model.parameters())
