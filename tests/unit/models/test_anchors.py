import torch

from obbflow.models.anchors import base_anchors, level_anchors

CPU = torch.device("cpu")


def test_base_anchors_have_the_area_of_their_scale_and_the_ratio_of_their_shape():
    anchors = base_anchors(8, scales=(4.0, 8.0), ratios=(0.5, 1.0, 2.0))
    width, height = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    ratios = torch.tensor([0.5, 0.5, 1.0, 1.0, 2.0, 2.0])
    sides = torch.tensor([32.0, 64.0] * 3)  # scales vary fastest
    torch.testing.assert_close(height / width, ratios)
    torch.testing.assert_close((width * height).sqrt(), sides)
    torch.testing.assert_close(anchors[:, :2], -anchors[:, 2:])


def test_level_anchors_run_along_x_before_y():
    base = base_anchors(16, scales=(1.0,), ratios=(1.0,))
    anchors = level_anchors(2, 3, 16, base, CPU)
    centres = (anchors[:, :2] + anchors[:, 2:]) / 2
    expected = [[0, 0], [16, 0], [32, 0], [0, 16], [16, 16], [32, 16]]
    assert centres.tolist() == expected
