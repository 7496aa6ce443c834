"""Boxes for property tests: hypothesis strategies and a catalogue of odd ones."""

import math

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

PROPERTY = settings(derandomize=True, deadline=None, max_examples=40)  # the same cases each time

POSITION = st.floats(-100, 1100)  # px, of centres; images are around 1,000 px
LENGTH = st.floats(0.5, 400)  # px, of sides
ANGLE = st.floats(-4 * math.pi, 4 * math.pi)

# Every operation has to cope with these: (cx, cy, w, h, angle), le90.
ODD_RBOXES = {
    "level": (50.0, 40.0, 20.0, 10.0, 0.0),
    "upright": (50.0, 40.0, 20.0, 10.0, -math.pi / 2),
    "square": (50.0, 40.0, 16.0, 16.0, 0.3),
    "square at the limit": (50.0, 40.0, 16.0, 16.0, -math.pi / 4),
    "sliver": (50.0, 40.0, 200.0, 0.5, 0.7),
    "dot": (50.0, 40.0, 1e-3, 1e-3, 0.2),
    "huge": (50.0, 40.0, 1e5, 3e4, -0.9),
    "far away": (1e5, -2e5, 30.0, 12.0, 1.1),
    "half outside": (0.0, 0.0, 40.0, 20.0, 0.5),
    "touches level": (70.0, 40.0, 20.0, 10.0, 0.0),
    "shares a corner with level": (70.0, 50.0, 20.0, 10.0, 0.0),
}


def odd_rboxes(dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the catalogue as (11, 5)."""
    return torch.tensor(list(ODD_RBOXES.values()), dtype=dtype)


@st.composite
def rbox_tensors(
    draw: st.DrawFn, min_size: int = 0, max_size: int = 8, span: float = 400.0
) -> Tensor:
    """Draw (n, 5) float64 boxes of any angle and either side longer, centred within ``span`` px.

    A small ``span`` makes them overlap.
    """
    position = st.floats(0, span)
    box = st.tuples(position, position, LENGTH, LENGTH, ANGLE)
    boxes = draw(st.lists(box, min_size=min_size, max_size=max_size))
    return torch.tensor(boxes, dtype=torch.float64).reshape(-1, 5)


@st.composite
def near_degenerate_pairs(draw: st.DrawFn, max_size: int = 6) -> tuple[Tensor, Tensor]:
    """Draw rboxes (n, 5) and as many that almost coincide, touch along a side or at a corner.

    The second box is the first one, moved along its own axes by 0 or a whole side, in one of its
    four descriptions; then every number is changed by up to 1e-4, or as little as 1e-15.
    """
    first = draw(rbox_tensors(min_size=1, max_size=max_size))
    count = len(first)
    steps = st.lists(st.sampled_from([-1, 0, 0, 1]), min_size=count, max_size=count)
    turns = torch.tensor(draw(st.lists(st.integers(-2, 2), min_size=count, max_size=count)))
    noise = st.sampled_from([0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-4])
    signed = st.lists(noise | noise.map(lambda value: -value), min_size=5, max_size=5)
    change = draw(st.lists(signed, min_size=count, max_size=count))
    cx, cy, w, h, angle = first.unbind(1)
    along_w, along_h = torch.tensor(draw(steps)) * w, torch.tensor(draw(steps)) * h
    is_odd = turns % 2 == 1
    second = [
        cx + along_w * angle.cos() - along_h * angle.sin(),
        cy + along_w * angle.sin() + along_h * angle.cos(),
        torch.where(is_odd, h, w),
        torch.where(is_odd, w, h),
        angle + turns * (math.pi / 2),
    ]
    return first, torch.stack(second, dim=1) + torch.tensor(change, dtype=torch.float64)


@st.composite
def hbox_tensors(draw: st.DrawFn, max_size: int = 10) -> Tensor:
    """Draw (n, 4) float64 level boxes, many with equal sides, no area or far greater than others.

    Sides on a coarse grid make boxes that touch, coincide and share x1 or y1.
    """
    place = st.integers(0, 12) | st.floats(0, 12)
    length = st.integers(0, 6) | st.floats(0, 6) | st.sampled_from([1e-9, 100.0, 1e6])
    box = st.tuples(place, place, length, length)
    x, y, w, h = (
        torch.tensor(draw(st.lists(box, max_size=max_size)), dtype=torch.float64)
        .reshape(-1, 4)
        .unbind(1)
    )
    return torch.stack([x, y, x + w, y + h], dim=1)


@st.composite
def scored_rboxes(draw: st.DrawFn, max_size: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """Draw crowded boxes (n, 5) with scores (n,), many of them equal, and labels 1..3 (n,)."""
    rboxes = draw(rbox_tensors(max_size=max_size, span=150.0))
    count = len(rboxes)
    tenths = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    labels = draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    return rboxes, torch.tensor(tenths) / 10, torch.tensor(labels, dtype=torch.int64)
