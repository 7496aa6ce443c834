import pytest
import torch

from obbflow.evaluation.average_precision import average_precision, precision_recall


@pytest.mark.parametrize(
    ("hits", "n_gt", "area", "voc07"),
    [
        ([1], 1, 1.0, 1.0),
        ([0, 1], 1, 0.5, 0.5),
        ([1, 0, 1], 2, 0.5 + 0.5 * 2 / 3, (6 + 5 * 2 / 3) / 11),
        ([1], 4, 0.25, 3 / 11),
        ([0, 0], 3, 0.0, 0.0),
        ([], 3, 0.0, 0.0),
    ],
    ids=["perfect", "wrong first", "duplicate", "three missed", "all wrong", "no detection"],
)
def test_average_precision_of_hand_computed_lists(hits, n_gt, area, voc07):
    is_hit = torch.tensor(hits, dtype=torch.bool)
    assert average_precision(is_hit, n_gt) == pytest.approx(area, abs=1e-12)
    assert average_precision(is_hit, n_gt, "voc07") == pytest.approx(voc07, abs=1e-12)


def test_precision_dips_are_filled_from_the_right():
    is_hit = torch.tensor([False, True, True, True], dtype=torch.bool)
    assert average_precision(is_hit, 3) == pytest.approx(3 / 4, abs=1e-12)


@pytest.mark.parametrize("interpolation", ["area", "voc07"])
def test_nothing_to_find_has_no_average_precision(interpolation):
    assert average_precision(torch.tensor([False]), 0, interpolation) is None


def test_unknown_interpolation_is_refused():
    with pytest.raises(ValueError, match="'area' or 'voc07', got 'coco'"):
        average_precision(torch.tensor([True]), 1, "coco")


def test_precision_and_recall_after_each_detection():
    precision, recall = precision_recall(torch.tensor([True, False, True]), 4)
    assert precision.tolist() == pytest.approx([1, 1 / 2, 2 / 3])
    assert recall.tolist() == [0.25, 0.25, 0.5]
