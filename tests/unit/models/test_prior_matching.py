from functools import partial

import pytest
import torch
from torchvision.ops import box_iou

from obbflow.models import matching
from obbflow.models.matching import BACKGROUND, IGNORED, MaxIoUMatcher, ignore_covered, sample
from obbflow.ops import box_iou_rotated

OBJECT = torch.tensor([[0.0, 0.0, 10.0, 10.0]])
# IoU with the object: 1, 0.8, 0.5, 0.2, 0
PRIORS = torch.tensor(
    [[0.0, 0, 10, 10], [0, 0, 10, 8], [0, 0, 10, 5], [0, 0, 10, 2], [20, 20, 30, 30]]
)


def test_thresholds_split_priors_into_positive_ignored_and_background():
    matcher = MaxIoUMatcher(positive=0.8, negative=0.5)
    expected = [0, 0, IGNORED, BACKGROUND, BACKGROUND]
    assert matcher.match(OBJECT, PRIORS, box_iou).tolist() == expected


def test_a_poorly_met_object_takes_its_best_prior():
    priors = PRIORS[2:]
    plain = MaxIoUMatcher(positive=0.7, negative=0.3, min_positive=0.3)
    assert plain.match(OBJECT, priors, box_iou).tolist() == [IGNORED, BACKGROUND, BACKGROUND]
    low = MaxIoUMatcher(positive=0.7, negative=0.3, min_positive=0.3, low_quality=True)
    assert low.match(OBJECT, priors, box_iou).tolist() == [0, BACKGROUND, BACKGROUND]


def test_an_object_met_below_the_minimum_takes_none():
    matcher = MaxIoUMatcher(positive=0.7, negative=0.3, min_positive=0.3, low_quality=True)
    assert matcher.match(OBJECT, PRIORS[3:], box_iou).tolist() == [BACKGROUND, BACKGROUND]


def test_no_objects_make_every_prior_background():
    matcher = MaxIoUMatcher(positive=0.7, negative=0.3, low_quality=True)
    assert matcher.match(torch.zeros(0, 4), PRIORS, box_iou).tolist() == [BACKGROUND] * 5
    assert matcher.match(OBJECT, torch.zeros(0, 4), box_iou).tolist() == []


def test_pieces_give_the_same_matches_as_one_matrix(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    low = torch.rand(220, 2, generator=generator) * 90
    boxes = torch.cat([low, low + 5 + torch.rand(220, 2, generator=generator) * 25], dim=1)
    matcher = MaxIoUMatcher(positive=0.6, negative=0.3, min_positive=0.2, low_quality=True)
    whole = matcher.match(boxes[:20], boxes[20:], box_iou)
    monkeypatch.setattr(matching, "_CHUNK_ELEMENTS", 20 * 7)
    assert torch.equal(matcher.match(boxes[:20], boxes[20:], box_iou), whole)
    assert len(whole.unique()) > 10


def test_memory_of_matching_does_not_grow_with_the_objects():
    sizes = []

    def overlap(gt, priors):
        sizes.append(len(gt) * len(priors))
        return gt.new_full((len(gt), len(priors)), 0.4)

    matcher = MaxIoUMatcher(positive=0.7, negative=0.3, min_positive=0.3, low_quality=True)
    matches = matcher.match(torch.zeros(2000, 4), torch.zeros(1500, 4), overlap)
    assert sum(sizes) == 2 * 2000 * 1500  # low quality looks twice
    assert max(sizes) <= 1_000_000
    assert (matches == 1999).all()


def test_background_inside_an_ignore_region_is_ignored():
    region = torch.tensor([[50.0, 50.0, 40.0, 20.0, 0.5]])
    priors = torch.tensor(
        [[50.0, 50.0, 10.0, 5.0, 0.1], [50.0, 50.0, 10.0, 5.0, 0.1], [200.0, 50.0, 10.0, 5.0, 0.1]]
    )
    matches = torch.tensor([BACKGROUND, 3, BACKGROUND])
    iof = partial(box_iou_rotated, mode="iof")
    assert ignore_covered(matches, region, priors, iof).tolist() == [IGNORED, 3, BACKGROUND]
    assert torch.equal(ignore_covered(matches, region[:0], priors, iof), matches)


@pytest.mark.parametrize(
    ("positives", "size", "fraction", "expected"),
    [(100, 40, 0.25, (10, 30)), (4, 40, 0.25, (4, 36)), (100, 400, 0.5, (100, 200))],
    ids=["enough of both", "few positives", "fewer than asked"],
)
def test_a_sample_is_filled_up_with_background(positives, size, fraction, expected):
    matches = torch.cat(
        [torch.arange(positives), torch.full((200,), BACKGROUND), torch.full((50,), IGNORED)]
    )
    chosen, background = sample(matches, size, fraction)
    assert (len(chosen), len(background)) == expected
    assert (matches[chosen] >= 0).all()
    assert (matches[background] == BACKGROUND).all()
    assert len(torch.cat([chosen, background]).unique()) == sum(expected)


def test_the_same_seed_chooses_the_same_priors():
    matches = torch.where(torch.arange(500) % 3 == 0, 0, BACKGROUND)
    drawn = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        drawn.append(torch.cat(sample(matches, 32, 0.5)))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
