import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obbflow.ops import batched_nms_rotated, box_iou_rotated, nms, nms_rotated, pairs
from strategies import PROPERTY, odd_rboxes, scored_rboxes

THRESHOLD = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8, 1.0])


def greedy(boxes, scores, labels, threshold):
    """The definition, one box at a time."""
    table = box_iou_rotated(boxes.double(), boxes.double())
    kept = []
    for row in sorted(range(len(boxes)), key=lambda row: (-scores[row].item(), row)):
        if all(labels[row] != labels[k] or table[row, k] <= threshold for k in kept):
            kept.append(row)
    return kept


def crowd(count, span, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.tensor([span, span, 40.0, 20.0, 6.0])
    boxes = torch.rand(count, 5, generator=generator) * scale + torch.tensor([0, 0, 4, 4, -3])
    return boxes, torch.rand(count, generator=generator)


@PROPERTY
@given(case=scored_rboxes(), threshold=THRESHOLD)
def test_kept_boxes_are_those_of_the_greedy_definition(case, threshold):
    boxes, scores, labels = case
    one_class = torch.ones_like(labels)
    assert nms_rotated(boxes, scores, threshold).tolist() == greedy(
        boxes, scores, one_class, threshold
    )
    assert batched_nms_rotated(boxes, scores, labels, threshold).tolist() == greedy(
        boxes, scores, labels, threshold
    )


@PROPERTY
@given(case=scored_rboxes(), threshold=THRESHOLD)
def test_suppressing_twice_is_suppressing_once(case, threshold):
    boxes, scores, _ = case
    keep = nms_rotated(boxes, scores, threshold)
    again = nms_rotated(boxes[keep], scores[keep], threshold)
    assert again.tolist() == list(range(len(keep)))


@PROPERTY
@given(case=scored_rboxes(), threshold=THRESHOLD, data=st.data())
def test_order_of_the_input_matters_for_equal_scores_alone(case, threshold, data):
    boxes, _, _ = case
    scores = torch.arange(len(boxes)) / 100
    shuffle = torch.tensor(data.draw(st.permutations(range(len(boxes)))), dtype=torch.int64)
    keep = nms_rotated(boxes, scores, threshold)
    shuffled_keep = nms_rotated(boxes[shuffle], scores[shuffle], threshold)
    assert shuffle[shuffled_keep].tolist() == keep.tolist()


def test_equal_scores_keep_input_order():
    boxes = torch.tensor([[10.0, 10, 8, 4, 0], [50, 10, 8, 4, 0], [10.5, 10, 8, 4, 0]])
    assert nms_rotated(boxes, torch.full((3,), 0.5), 0.5).tolist() == [0, 1]
    assert nms_rotated(boxes.flip(0), torch.full((3,), 0.5), 0.5).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("threshold", "kept"), [(0.5, [0, 1]), (0.4999, [0])], ids=["equal", "just above"]
)
def test_box_is_suppressed_above_the_threshold_but_not_at_it(threshold, kept):
    boxes = torch.tensor([[2.0, 1, 4, 2, 0], [2.0, 0.5, 4, 1, 0]])  # IoU 1/2, without rounding
    assert nms_rotated(boxes, torch.tensor([0.9, 0.8]), threshold).tolist() == kept


def test_suppressed_box_suppresses_nothing():
    chain = torch.tensor([[0.0, 0, 8, 4, 0], [3.0, 0, 8, 4, 0], [6.0, 0, 8, 4, 0]])
    assert nms_rotated(chain, torch.tensor([0.9, 0.8, 0.7]), 0.3).tolist() == [0, 2]


def test_classes_do_not_suppress_each_other_however_far_the_labels():
    boxes = torch.tensor([[1e5, 1e5, 8, 4, 0.3]]).repeat(4, 1)
    labels = torch.tensor([7, 1_000_000, 7, -3])
    keep = batched_nms_rotated(boxes, torch.tensor([0.6, 0.9, 0.7, 0.8]), labels, 0.5)
    assert keep.tolist() == [1, 3, 2]


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_classes_together_keep_what_each_class_keeps_by_itself(offset):
    boxes, scores = crowd(1500, span=200.0)
    boxes[:, :2] += offset
    labels = torch.arange(1500) * 7 % 15 - 4
    keep = batched_nms_rotated(boxes, scores, labels, 0.3)
    alone = [
        rows[nms_rotated(boxes[rows], scores[rows], 0.3)]
        for rows in ((labels == label).nonzero().squeeze(1) for label in labels.unique())
    ]
    assert 300 < len(keep) < 1500
    assert keep.sort().values.tolist() == torch.cat(alone).sort().values.tolist()
    assert (scores[keep].diff() <= 0).all()


def test_zero_boxes_keep_zero():
    empty = torch.zeros(0, 5)
    for keep in (
        nms_rotated(empty, torch.zeros(0), 0.5),
        batched_nms_rotated(empty, torch.zeros(0), torch.zeros(0, dtype=torch.int64), 0.5),
    ):
        assert keep.shape == (0,)
        assert keep.dtype == torch.int64


def test_odd_boxes_follow_the_greedy_definition():
    boxes = odd_rboxes()
    scores = torch.linspace(1, 0, len(boxes))
    for threshold in (0.0, 0.2, 0.6):
        expected = greedy(boxes, scores, torch.ones(len(boxes)), threshold)
        assert nms_rotated(boxes, scores, threshold).tolist() == expected


def test_chunks_change_nothing(monkeypatch):
    boxes, scores = crowd(300, span=120.0)
    whole = nms_rotated(boxes, scores, 0.3)
    monkeypatch.setattr(pairs, "_PAIRS_PER_CHUNK", 50)
    assert 10 < len(whole) < 200
    assert torch.equal(nms_rotated(boxes, scores, 0.3), whole)


def test_memory_grows_with_the_pairs_that_touch(monkeypatch):
    """20,000 boxes without an N x N table: no call sees more than 1 in 1,000 of all pairs."""
    boxes, scores = crowd(20_000, span=8_000.0)
    seen = []

    def spy(boxes, i, j):
        seen.append(len(i))
        return overlap_of_pairs(boxes, i, j)

    overlap_of_pairs = nms.overlap_of_pairs
    monkeypatch.setattr(nms, "overlap_of_pairs", spy)
    keep = nms_rotated(boxes, scores, 0.1)
    assert 15_000 < len(keep) < 20_000
    assert sum(seen) < 20_000**2 / 2 / 1000


@pytest.mark.parametrize(
    ("boxes", "scores", "threshold", "message"),
    [
        (torch.zeros(2, 5), torch.tensor([0.5, math.nan]), 0.5, "1 of 2 scores are NaN"),
        (torch.full((2, 5), math.inf), torch.zeros(2), 0.5, "boxes must be finite"),
        (torch.zeros(2, 5), torch.zeros(3), 0.5, r"scores must be \(2,\), got \(3,\)"),
        (torch.zeros(2, 4), torch.zeros(2), 0.5, r"boxes must be \(N, 5\).*got \(2, 4\)"),
        (torch.zeros(2, 5), torch.zeros(2), 50, r"within 0\.\.1, got 50"),
    ],
    ids=["NaN score", "infinite box", "score count", "box shape", "threshold"],
)
def test_bad_arguments_are_refused(boxes, scores, threshold, message):
    with pytest.raises(ValueError, match=message):
        nms_rotated(boxes, scores, threshold)
    with pytest.raises(ValueError, match=message):
        batched_nms_rotated(boxes, scores, torch.zeros(len(scores)), threshold)


def test_labels_of_another_length_are_refused():
    with pytest.raises(ValueError, match=r"labels must be \(2,\), got \(3,\)"):
        batched_nms_rotated(torch.zeros(2, 5), torch.zeros(2), torch.zeros(3), 0.5)
