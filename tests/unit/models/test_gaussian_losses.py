import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gaussian_formulas as published
from obbflow.models.losses.gaussian import (
    bcd_loss,
    gwd_loss,
    kfiou_loss,
    kld_loss,
    kld_v1_loss,
    probiou_loss,
)
from strategies import ANGLE, PROPERTY, odd_rboxes, rbox_tensors

RAW = {"fun": "none", "tau": 0}  # the distance itself


def kfiou_of_shapes(pred: Tensor, target: Tensor, fun: str | None = None) -> Tensor:
    """Return the loss with equal deltas, so without its centre term."""
    deltas = torch.zeros(len(pred), 2, dtype=pred.dtype)
    return kfiou_loss(pred, target, deltas, deltas, fun=fun)


LOSSES = {  # (loss, least value)
    "gwd": (gwd_loss, 0),
    "gwd raw": (partial(gwd_loss, **RAW), 0),
    "gwd of the paper": (partial(gwd_loss, fun="none", tau=2, normalize=False), 0.5),
    "gwd root": (partial(gwd_loss, fun="sqrt", tau=2), 0.5),
    "kld": (kld_loss, 0),
    "kld raw": (partial(kld_loss, **RAW, sqrt=False), 0),
    "kld without root": (partial(kld_loss, sqrt=False), 0),
    "kld root": (partial(kld_loss, fun="sqrt"), 0),
    "kld jeffreys": (partial(kld_loss, symmetric="jeffreys"), 0),
    "kld max": (partial(kld_loss, symmetric="max"), 0),
    "kld min": (partial(kld_loss, symmetric="min"), 0),
    "kld jeffreys raw": (partial(kld_loss, **RAW, sqrt=False, symmetric="jeffreys"), 0),
    "kld v1": (kld_v1_loss, 0),
    "kld v1 raw": (partial(kld_v1_loss, **RAW), 0),
    "bcd": (bcd_loss, 0),
    "bcd root": (partial(bcd_loss, fun="sqrt"), 0),
    "bcd raw": (partial(bcd_loss, **RAW), 0),
    "kfiou": (kfiou_of_shapes, 2 / 3),
    "kfiou ln": (partial(kfiou_of_shapes, fun="ln"), math.log(3)),
    "kfiou exp": (partial(kfiou_of_shapes, fun="exp"), math.expm1(2 / 3)),
    "probiou l1": (probiou_loss, 0),
    "probiou l2": (partial(probiou_loss, mode="l2"), 0),
}
DEPENDS_ON_SCALE = "gwd of the paper"
SYMMETRIC = [
    name for name in LOSSES if not name.startswith("kld") or name.split()[-1] in ("max", "min")
]
FEW = settings(PROPERTY, max_examples=15)  # each of them goes through all losses
each_loss = pytest.mark.parametrize("name", LOSSES)

# As odd_rboxes(), and what no label but a bad prediction may hold.
DEGENERATE = torch.cat(
    [
        odd_rboxes(),
        torch.tensor(
            [
                (50.0, 40.0, 20.0, 10.0, math.pi / 2),
                (50.0, 40.0, 20.0, 10.0, -40.0),
                (50.0, 40.0, 20.0, 10.0, 1e-6),
                (50.00001, 40.0, 20.0, 10.0, 0.0),
                (50.0, 40.0, 0.0, 0.0, 0.2),
                (50.0, 40.0, 20.0, 0.0, 0.2),
                (50.0, 40.0, 0.0, 20.0, 0.2),
                (50.0, 40.0, -3.0, 5.0, 0.2),
                (50.0, 40.0, 1e-6, 1e-6, 0.7),
                (50.0, 40.0, 1e3, 1.0, 0.7),
                (50.0, 40.0, 1.0, 1e3, 0.7),
                (1e5, 1e5, 0.0, 0.0, 0.1),
                (-1e5, -1e5, 1e5, 0.0, 0.1),
                (-1e5, 1e5, 1e7, 1e-7, 0.4),
                (-1e5, 1e5, 1e-7, 1e7, 0.4),
                (50.0, 40.0, 1e30, 1e30, 0.4),
            ],
            dtype=torch.float64,
        ),
    ]
)


def all_pairs(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Return every box against every box, (N * N, 5) twice."""
    count = len(boxes)
    return boxes.repeat_interleave(count, dim=0), boxes.repeat(count, 1)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    boxes = draw(rbox_tensors(min_size=2, max_size=8))
    half = len(boxes) // 2
    return boxes[:half], boxes[half : 2 * half]


def random_pairs(count: int = 50) -> tuple[Tensor, Tensor]:
    """Return boxes of 5..45 px, turned anyhow, and others near by; float64."""
    generator = torch.Generator().manual_seed(7)
    scale = torch.tensor([60.0, 60.0, 40.0, 40.0, 6.0], dtype=torch.float64)
    least = torch.tensor([0.0, 0.0, 5.0, 5.0, -3.0], dtype=torch.float64)
    boxes = torch.rand(2, count, 5, generator=generator, dtype=torch.float64) * scale + least
    return boxes[0], boxes[1]


def turned_description(boxes: Tensor) -> Tensor:
    """Return the same rectangles with their sides in the other order."""
    cx, cy, w, h, angle = boxes.unbind(dim=1)
    return torch.stack([cx, cy, h, w, angle + math.pi / 2], dim=1)


def assert_same(actual: Tensor, expected: Tensor, name: str) -> None:
    # A root turns float64's rounding near 0 into 1e-8, two of them into 1e-4.
    atol = 2e-4 if "root" in name else 2e-7
    torch.testing.assert_close(
        actual, expected, rtol=1e-6, atol=atol, msg=lambda message: f"{name}: {message}"
    )


# What the losses are.


@pytest.mark.parametrize(
    ("loss", "formula"),
    [
        (
            partial(gwd_loss, **RAW, normalize=False),
            lambda p, t: published.squared_wasserstein(p, t).sqrt(),
        ),
        (
            partial(gwd_loss, **RAW),
            lambda p, t: published.squared_wasserstein(p, t).sqrt() / published.mean_side(p, t),
        ),
        (partial(kld_loss, **RAW, sqrt=False), lambda p, t: published.kullback_leibler(t, p)),
        (partial(kld_loss, **RAW), lambda p, t: published.kullback_leibler(t, p).sqrt()),
        (partial(kld_v1_loss, **RAW), lambda p, t: 2 * published.kullback_leibler(p, t)),
        (partial(bcd_loss, **RAW), published.bhattacharyya),
        (partial(probiou_loss, mode="l2"), partial(published.bhattacharyya, variance=1 / 3)),
        (kfiou_of_shapes, lambda p, t: 1 - published.kfiou(p, t)),
        (partial(kfiou_of_shapes, fun="ln"), lambda p, t: -published.kfiou(p, t).log()),
        (partial(kfiou_of_shapes, fun="exp"), lambda p, t: (1 - published.kfiou(p, t)).exp() - 1),
    ],
    ids=[
        "gwd",
        "gwd normalised",
        "kld",
        "kld root",
        "kld v1",
        "bcd",
        "probiou",
        "kfiou",
        "kfiou ln",
        "kfiou exp",
    ],
)
def test_distances_and_gradients_are_those_of_the_published_formulas(loss, formula):
    pred, target = random_pairs()
    ours, theirs = (pred.clone().requires_grad_() for _ in range(2))
    actual, expected = loss(ours, target), formula(theirs, target)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    actual.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-8, atol=1e-8)


def test_symmetric_divergences_combine_both_directions():
    pred, target = random_pairs()
    divergence = partial(kld_loss, **RAW, sqrt=False)
    there, back = divergence(pred, target), divergence(target, pred)
    assert not torch.allclose(there, back)
    combined = {
        "jeffreys": (there + back) / 2,
        "max": torch.maximum(there, back),
        "min": torch.minimum(there, back),
    }
    for symmetric, expected in combined.items():
        assert_same(divergence(pred, target, symmetric=symmetric), expected, symmetric)


def test_fun_and_tau_bend_the_distance():
    pred, target = random_pairs()
    distance = bcd_loss(pred, target, **RAW)
    torch.testing.assert_close(bcd_loss(pred, target, fun="log1p", tau=0), (1 + distance).log())
    torch.testing.assert_close(bcd_loss(pred, target, fun="sqrt", tau=0), distance.sqrt())
    expected = 1 - 1 / (3 + distance)
    torch.testing.assert_close(bcd_loss(pred, target, fun="none", tau=3), expected)


def test_hellinger_and_bhattacharyya_modes_of_probiou_belong_together():
    pred, target = random_pairs()
    l1, l2 = (probiou_loss(pred, target, mode=mode) for mode in ("l1", "l2"))
    torch.testing.assert_close(l1.square(), 1 - (-l2).exp())


def test_kfiou_takes_the_centres_from_the_first_two_deltas():
    boxes = torch.tensor([[10.0, 20.0, 8.0, 4.0, 0.3]]).repeat(2, 1)
    moved = boxes + torch.tensor([7.0, -9.0, 0.0, 0.0, 0.0])
    deltas = torch.tensor([[0.05, -2.0, 9.0], [0.0, 0.0, 9.0]])
    loss = kfiou_loss(boxes, moved, deltas, torch.zeros(2, 3), beta=0.1)
    centre = 0.05**2 / (2 * 0.1) + (2 - 0.1 / 2)
    assert loss.tolist() == pytest.approx([2 / 3 + centre, 2 / 3])


# What holds for any boxes.


@each_loss
def test_equal_rectangles_cost_the_least(name):
    loss, least = LOSSES[name]
    boxes = odd_rboxes()
    assert loss(boxes, boxes).tolist() == pytest.approx([least] * len(boxes), abs=1e-12)
    for description in (turned_description(boxes), turned_description(turned_description(boxes))):
        torch.testing.assert_close(loss(description, boxes), loss(boxes, boxes), rtol=0, atol=1e-4)


@FEW
@given(pairs())
def test_no_loss_is_below_its_least_value(boxes):
    for name, (loss, least) in LOSSES.items():
        assert (loss(*boxes) >= least - 1e-15).all(), name


@FEW
@given(boxes=pairs(), angle=ANGLE, dx=st.floats(-1e3, 1e3), dy=st.floats(-1e3, 1e3))
def test_moving_and_turning_both_boxes_changes_nothing(boxes, angle, dx, dy):
    cos, sin = math.cos(angle), math.sin(angle)
    moved = []
    for rboxes in boxes:
        cx, cy, w, h, turn = rboxes.unbind(dim=1)
        columns = [cx * cos - cy * sin + dx, cx * sin + cy * cos + dy, w, h, turn + angle]
        moved.append(torch.stack(columns, dim=1))
    for name, (loss, _) in LOSSES.items():
        assert_same(loss(*moved), loss(*boxes), name)


@FEW
@given(pairs())
def test_the_description_of_a_rectangle_changes_nothing(boxes):
    pred, target = boxes
    for name, (loss, _) in LOSSES.items():
        assert_same(loss(turned_description(pred), target), loss(pred, target), name)
        assert_same(loss(pred, turned_description(target)), loss(pred, target), name)


@FEW
@given(boxes=pairs(), factor=st.floats(1e-3, 1e3))
def test_losses_do_not_depend_on_the_scale(boxes, factor):
    scaled = [rboxes * torch.tensor([factor] * 4 + [1.0]) for rboxes in boxes]
    for name, (loss, _) in LOSSES.items():
        if name != DEPENDS_ON_SCALE:
            assert_same(loss(*scaled), loss(*boxes), name)
    loss = partial(gwd_loss, **RAW, normalize=False)
    assert_same(loss(*scaled) / factor, loss(*boxes), "gwd in px")


@FEW
@given(pairs())
def test_symmetric_losses_do_not_tell_prediction_from_target(boxes):
    pred, target = boxes
    for name in SYMMETRIC:
        assert_same(LOSSES[name][0](pred, target), LOSSES[name][0](target, pred), name)


@each_loss
def test_gradients_do_not_depend_on_the_description(name):
    loss, (pred, target) = LOSSES[name][0], random_pairs()
    gradients = []
    for boxes in (pred, turned_description(pred)):
        boxes = boxes.clone().requires_grad_()
        loss(boxes, target).sum().backward()
        gradients.append(boxes.grad)
    plain, turned = gradients
    torch.testing.assert_close(turned[:, [0, 1, 3, 2, 4]], plain, rtol=1e-6, atol=1e-9)


@each_loss
def test_gradients_are_those_of_finite_differences(name):
    pred, target = (boxes[:6].requires_grad_() for boxes in random_pairs())
    assert torch.autograd.gradcheck(LOSSES[name][0], (pred, target))


# What goes wrong in float32, in half precision and at the edges.


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_degenerate_boxes_have_finite_losses_and_gradients(name, dtype):
    pred, target = (boxes.to(dtype).requires_grad_() for boxes in all_pairs(DEGENERATE))
    losses = LOSSES[name][0](pred, target)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert pred.grad.isfinite().all()
    assert target.grad.isfinite().all()


@each_loss
@pytest.mark.parametrize(
    ("w", "h"), [(20.0, 12.0), (1e3, 1.0), (1e-6, 5e-7)], ids=["plain", "sliver", "tiny"]
)
def test_float32_tells_near_identical_boxes_apart(name, w, h):
    """In centre, sides or angle they differ by 1 in 2,000, where covariances would cancel."""
    loss, least = LOSSES[name]
    columns = [0, 2, 3, 4]
    target = torch.tensor([[0.0, 0.0, w, h, 0.7]] * 4)
    pred = target.clone()
    pred[:, columns] += torch.diag(torch.tensor([h, w, h, 1.0]) / 2000)
    exact, rounded = pred.double().requires_grad_(), pred.clone().requires_grad_()
    expected, actual = loss(exact, target.double()), loss(rounded, target)
    torch.testing.assert_close(actual.double() - least, expected - least, rtol=5e-4, atol=3e-7)
    expected.sum().backward()
    actual.sum().backward()
    slopes = [boxes.grad[:, columns].diagonal() for boxes in (rounded, exact)]
    torch.testing.assert_close(slopes[0].double(), slopes[1], rtol=2e-3, atol=0)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != DEPENDS_ON_SCALE])
def test_float32_is_as_exact_at_a_millionth_of_a_pixel(name):
    factor = 2.0**-24  # 5 to 45 px become 3e-7 to 3e-6 px, without rounding
    target, pred = (boxes.float() for boxes in random_pairs())
    results = []
    for scale in (1.0, factor):
        columns = torch.tensor([scale] * 4 + [1.0])
        boxes = (pred * columns).requires_grad_()
        losses = LOSSES[name][0](boxes, target * columns)
        losses.sum().backward()
        results.append((losses.detach(), boxes.grad * columns))
    (losses, slopes), (tiny_losses, tiny_slopes) = results
    torch.testing.assert_close(tiny_losses, losses, rtol=1e-6, atol=0)
    torch.testing.assert_close(tiny_slopes, slopes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in LOSSES if "root" not in name])
def test_rounding_near_equal_boxes_does_not_blow_up_the_gradient(name):
    target = torch.tensor([[0.0, 0.0, 1.0, 1.0, 0.0]])
    pred = torch.tensor([[1e-14, 0.0, 1 + 2.0**-23, 1.0, 0.0]], requires_grad=True)
    LOSSES[name][0](pred, target).sum().backward()
    assert pred.grad.abs().max() < 2  # per px, of boxes of 1 px


@each_loss
def test_a_tiny_prediction_learns_to_grow(name):
    pred = torch.tensor([[50.0, 40.0, 1e-6, 1e-6, 0.3]], requires_grad=True)
    LOSSES[name][0](pred, torch.tensor([[52.0, 40.0, 20.0, 10.0, 0.1]])).sum().backward()
    assert (pred.grad[:, 2:4] < 0).all()


@pytest.mark.parametrize(
    "name", [name for name in LOSSES if "kfiou" not in name and "l1" not in name]
)
def test_boxes_far_apart_still_pull(name):
    pred = torch.tensor([[1e5, 0.0, 20.0, 10.0, 0.3]], requires_grad=True)
    LOSSES[name][0](pred, torch.tensor([[0.0, 0.0, 20.0, 10.0, 0.1]])).sum().backward()
    assert pred.grad[0, 0] > 0


@each_loss
def test_autocast_changes_nothing(name):
    pred, target = (boxes.float() for boxes in random_pairs())
    outside = LOSSES[name][0](pred, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = LOSSES[name][0](pred, target)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)


@each_loss
def test_half_precision_boxes_are_computed_in_float32(name):
    pred, target = (boxes.bfloat16() for boxes in random_pairs())
    actual = LOSSES[name][0](pred, target)
    assert torch.equal(actual, LOSSES[name][0](pred.float(), target.float()))


@each_loss
def test_no_boxes_cost_nothing(name):
    pred = torch.zeros(0, 5, requires_grad=True)
    losses = LOSSES[name][0](pred, torch.zeros(0, 5))
    assert losses.shape == (0,)
    losses.sum().backward()
    assert pred.grad.shape == (0, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda boxes: gwd_loss(boxes[:, :4], boxes), r"pred must be \(N, 5\)"),
        (lambda boxes: bcd_loss(boxes, boxes[:, 0]), r"target must be \(N, 5\)"),
        (lambda boxes: kld_loss(boxes, boxes[:1]), "must pair up, got 3 and 1 boxes"),
        (lambda boxes: kld_loss(boxes, boxes, fun="log"), "fun must be .*, got 'log'"),
        (lambda boxes: gwd_loss(boxes, boxes, tau=0.5), "tau must be .*, got 0.5"),
        (lambda boxes: gwd_loss(boxes, boxes, tau=math.nan), "tau must be .*, got nan"),
        (lambda boxes: kld_loss(boxes, boxes, symmetric="mean"), "symmetric must .* got 'mean'"),
        (lambda boxes: probiou_loss(boxes, boxes, mode="l3"), "mode must be l1 or l2, got 'l3'"),
        (lambda boxes: kfiou_of_shapes(boxes, boxes, fun="none"), "fun must be .*, got 'none'"),
        (
            lambda boxes: kfiou_loss(boxes, boxes, boxes, boxes[:, :1]),
            r"target_deltas must be \(3, 2 or more\), got \(3, 1\)",
        ),
        (
            lambda boxes: kfiou_loss(boxes, boxes, boxes[:2], boxes),
            r"pred_deltas must be \(3, 2 or more\), got \(2, 5\)",
        ),
    ],
)
def test_wrong_calls_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ones(3, 5))


def test_whole_numbers_are_no_boxes():
    with pytest.raises(TypeError, match="pred must be floating-point"):
        gwd_loss(torch.ones(3, 5, dtype=torch.int64), torch.ones(3, 5))
