"""What a region head learns from where something only looks like an object."""

import pytest
import torch

from obbflow.config import ModelSection
from obbflow.geometry import rbox_to_hbox
from obbflow.models.roi_sampling import RegionSampler
from obbflow.models.rpn import level_rboxes
from obbflow.ops import box_iou_rotated

OBJECTS = torch.tensor([[100.0, 100.0, 60.0, 20.0, 0.4], [300.0, 100.0, 50.0, 30.0, -0.8]])
LOOKALIKES = torch.tensor([[100.0, 300.0, 60.0, 20.0, 0.4], [300.0, 300.0, 50.0, 30.0, -0.8]])
TARGET = {"rboxes": OBJECTS, "labels": torch.tensor([1, 2])}
SIZE = 64


@pytest.fixture(scope="module")
def proposals():
    """400 proposals somewhere else, and 12 that meet each object and look-alike more or less."""
    generator = torch.Generator().manual_seed(0)
    elsewhere = torch.rand(400, 5, generator=generator) * torch.tensor([300.0, 40, 40, 10, 1])
    elsewhere += torch.tensor([50.0, 180.0, 20.0, 8.0, -0.5])
    shown = torch.cat([OBJECTS, LOOKALIKES]).repeat(12, 1)
    shifts = torch.linspace(0, 20, 12).repeat_interleave(4)
    shown[:, 1] += shifts
    return torch.cat([elsewhere, shown])


def draw(proposals, target, seed=0, *, is_horizontal=False, **changes):
    section = ModelSection(roi_batch_size_per_image=SIZE, **changes)
    torch.manual_seed(seed)
    return RegionSampler(section, is_horizontal=is_horizontal)(proposals, target)


def draw_background(proposals, target, seed=0, **changes):
    sampled = draw(proposals, target, seed, **changes)
    return sampled.rboxes[sampled.labels == 0]


def n_on_lookalikes(rboxes):
    return int((box_iou_rotated(rboxes, LOOKALIKES).amax(dim=1) >= 0.5).sum())


@pytest.mark.parametrize("adds", [True, False])
def test_all_proposals_on_lookalikes_are_background_and_chosen(proposals, adds):
    expected = n_on_lookalikes(proposals) + (len(LOOKALIKES) if adds else 0)
    assert 8 < expected < 30
    marked = TARGET | {"rboxes_lookalike": LOOKALIKES}
    for seed in range(5):
        sampled = draw(proposals, marked, seed, add_gt_as_proposals=adds)
        background = sampled.rboxes[sampled.labels == 0]
        assert len(sampled.rboxes) == SIZE
        assert n_on_lookalikes(background) == expected
        assert n_on_lookalikes(sampled.rboxes) == expected
        assert len(background.unique(dim=0)) >= len(background) - adds * len(LOOKALIKES)
    by_chance = draw_background(proposals, TARGET, add_gt_as_proposals=adds)
    assert n_on_lookalikes(by_chance) < expected / 2


def test_they_may_fill_the_place_of_all_other_background(proposals):
    many = LOOKALIKES[:1].repeat(200, 1)
    background = draw_background(
        torch.cat([proposals, many]), TARGET | {"rboxes_lookalike": LOOKALIKES}
    )
    assert n_on_lookalikes(background) == len(background) > SIZE / 2


def test_level_regions_are_compared_with_what_encloses_the_lookalikes(proposals):
    level = level_rboxes(rbox_to_hbox(proposals))
    enclosing = level_rboxes(rbox_to_hbox(LOOKALIKES))
    sampled = draw(level, TARGET | {"rboxes_lookalike": LOOKALIKES}, is_horizontal=True)
    background = sampled.rboxes[sampled.labels == 0]
    expected = int((box_iou_rotated(level, enclosing).amax(dim=1) >= 0.5).sum())
    assert (box_iou_rotated(background, enclosing).amax(dim=1) >= 0.5).sum() == expected + 2 > 10
    assert (sampled.rboxes[:, 4] == 0).all()


def test_an_object_stays_one_where_something_looks_like_it(proposals):
    plain = draw(proposals, TARGET)
    doubled = draw(proposals, TARGET | {"rboxes_lookalike": OBJECTS})
    assert (plain.labels > 0).sum() >= 4
    assert (doubled.labels > 0).sum() >= (plain.labels > 0).sum()
    overlaps = box_iou_rotated(doubled.rboxes, OBJECTS)
    assert (overlaps[doubled.labels > 0].amax(dim=1) >= 0.5).all()
    assert (overlaps[doubled.labels == 0] < 0.5).all()


def test_without_lookalikes_the_choice_is_as_if_nobody_had_asked(proposals):
    plain = draw(proposals, TARGET, seed=3)
    empty = draw(proposals, TARGET | {"rboxes_lookalike": LOOKALIKES[:0]}, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(plain[:3], empty[:3], strict=True))
    assert plain.counts == empty.counts


def test_the_seed_decides_the_choice(proposals):
    marked = TARGET | {"rboxes_lookalike": LOOKALIKES}
    first, again, other = (draw(proposals, marked, seed) for seed in (3, 3, 4))
    assert torch.equal(first.rboxes, again.rboxes)
    assert not torch.equal(first.rboxes, other.rboxes)
