"""Moves an image and its boxes together: resize, crop, flip, rotate; normalises, pads the image.

Functions take ``(image, target)`` and return new ones. Coordinates are continuous: pixel (0, 0)
covers [0, 1) x [0, 1), so an image of width W spans [0, W]. Ignore regions and look-alikes move
like objects. Shapes: H and W px of the image, n objects, m ignore regions.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from obbflow.config import PreprocessingSection
from obbflow.errors import ConfigError, did_you_mean
from obbflow.geometry import flip_rboxes, rotate_rboxes, scale_rboxes, shift_rboxes
from obbflow.geometry.affine import FlipDirection
from obbflow.ops.iou import box_iou_rotated
from obbflow.structures import Target

_FLIP_PROBABILITY = 0.5
_QUARTER_TURN = 90.0  # degrees
_TURNS = (-_QUARTER_TURN, _QUARTER_TURN, 2 * _QUARTER_TURN)


@dataclass(frozen=True)
class TrainTransform:
    """What a training tile goes through: resize or crop, flip, normalise, rotate, pad.

    Attributes:
        preprocessing: Sizes, normalisation, and which movements are drawn.
        class_map: Class name -> id; ``random_rotate_rect_labels`` names some of them.

    Raises:
        ConfigError: If ``preprocessing.random_rotate_rect_labels`` names an unknown class.
    """

    preprocessing: PreprocessingSection
    class_map: Mapping[str, int]

    def __post_init__(self) -> None:
        unknown = set(self.preprocessing.random_rotate_rect_labels or ()) - set(self.class_map)
        if unknown:
            names = ", ".join(
                f"{name!r}{did_you_mean(name, self.class_map)}" for name in sorted(unknown)
            )
            raise ConfigError(
                f"preprocessing.random_rotate_rect_labels: no training object is a {names}; the "
                f"classes are {', '.join(self.class_map)}. Correct or remove the name."
            )

    def __call__(
        self, image: Tensor, target: Target, canvas_size: tuple[int, int], generator: Generator
    ) -> tuple[Tensor, Target]:
        """Return a randomly moved sample.

        Args:
            image: (3, H, W) uint8, or float on a 0-1 scale; RGB.
            target: Ground truth in px of ``image``.
            canvas_size: Height and width, px, that the resizing is reckoned from: those of a
                whole tile, also where the image is only its content.
            generator: Source of everything random.

        Returns:
            (3, H', W') float32, normalised, and the target in its pixels, with ``scale``.
        """
        image, target = resize(image, target, resize_factors(self.preprocessing, canvas_size))
        if self.preprocessing.resize_mode == "crop":
            image, target = random_crop(image, target, self.preprocessing.target_size, generator)
        image, target = random_flip(image, target, self.preprocessing, generator)
        image = normalize(image, self.preprocessing)  # before rotation, whose corners become 0
        if self.preprocessing.enable_random_rotate:
            names = self.preprocessing.random_rotate_rect_labels or ()
            rect_labels = [self.class_map[name] for name in names]
            image, target = random_rotate(image, target, self.preprocessing, rect_labels, generator)
        return _finish(image, self.preprocessing), target


@dataclass(frozen=True)
class EvalTransform:
    """What a validation tile goes through: resize, normalise, pad; nothing random, nothing cut.

    ``resize_mode: crop`` leaves the tile as it is: cutting it would hide objects that count.
    """

    preprocessing: PreprocessingSection

    def __call__(
        self, image: Tensor, target: Target, canvas_size: tuple[int, int], generator: Generator
    ) -> tuple[Tensor, Target]:
        """Return the sample as the model sees it; the arguments are those of `TrainTransform`."""
        del generator  # same call as in training
        image, target = resize(image, target, resize_factors(self.preprocessing, canvas_size))
        return _finish(normalize(image, self.preprocessing), self.preprocessing), target


def resize_factors(
    preprocessing: PreprocessingSection, canvas_size: tuple[int, int]
) -> tuple[float, float]:
    """Return the factors (x, y) that bring a tile of ``canvas_size`` (height, width) to target.

    ``fixed`` stretches each axis; ``pad`` and ``keep_ratio`` use one factor, by which the tile just
    fits into ``target_size``; ``crop`` is native resolution, (1, 1).

    Example:
        >>> resize_factors(PreprocessingSection(resize_mode="pad", target_size=(64, 64)), (32, 16))
        (2.0, 2.0)
    """
    height, width = canvas_size
    target_height, target_width = preprocessing.target_size
    factor_x, factor_y = target_width / width, target_height / height
    if preprocessing.resize_mode == "crop":
        return 1.0, 1.0
    if preprocessing.resize_mode == "fixed":
        return factor_x, factor_y
    return min(factor_x, factor_y), min(factor_x, factor_y)


def resize(image: Tensor, target: Target, factors: tuple[float, float]) -> tuple[Tensor, Target]:
    """Return the sample scaled to whole pixels, bilinearly, with anti-aliasing when it shrinks.

    Args:
        image: (3, H, W), uint8 or float.
        target: Ground truth in px of ``image``.
        factors: (x, y), new length over old length; the new lengths are rounded, at least 1 px.

    Returns:
        (3, H', W') in the same type, and the target with ``scale`` (x, y) = (W' / W, H' / H), the
        factors after rounding, by which the boxes are scaled.
    """
    height, width = image.shape[-2:]
    new_height, new_width = max(1, round(height * factors[1])), max(1, round(width * factors[0]))
    scale_x, scale_y = new_width / width, new_height / height
    scale = torch.tensor([scale_x, scale_y], dtype=target["rboxes"].dtype)
    if (new_height, new_width) == (height, width):
        return image, {**target, "scale": scale}
    resized = functional.interpolate(
        image[None], size=(new_height, new_width), mode="bilinear", antialias=True
    )[0]
    moved = _move_boxes(target, lambda rboxes: scale_rboxes(rboxes, scale_x, scale_y))
    return resized, {**moved, "scale": scale}


def normalize(image: Tensor, preprocessing: PreprocessingSection) -> Tensor:
    """Return (x / 255 - mean) / std for uint8, (x - mean) / std for float images on a 0-1 scale.

    Args:
        image: (3, H, W), RGB.
        preprocessing: ``normalize_mean`` and ``normalize_std``, on a 0-1 scale.

    Returns:
        (3, H, W) float32; the mean colour is 0.
    """
    white = 1.0 if image.is_floating_point() else 255.0
    mean = torch.tensor(preprocessing.normalize_mean)[:, None, None] * white
    std = torch.tensor(preprocessing.normalize_std)[:, None, None] * white
    return image.to(torch.float32).sub(mean).div_(std)


def pad_to_target(image: Tensor, target_size: tuple[int, int]) -> Tensor:
    """Return the image with 0 at the right and the bottom, up to ``target_size``.

    Boxes keep their places. An image that a quarter turn has made too high or too wide for an
    oblong target is padded to the target turned likewise.

    Args:
        image: (3, H, W), normalised: 0 is the mean colour.
        target_size: (height, width), px; the image fits into it, turned or not.

    Example:
        >>> pad_to_target(torch.ones(3, 1, 2), (2, 3))[0].tolist()
        [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    height, width = image.shape[-2:]
    below, beside = target_size[0] - height, target_size[1] - width
    if below < 0 or beside < 0:
        below, beside = target_size[1] - height, target_size[0] - width
    return functional.pad(image, (0, max(0, beside), 0, max(0, below)))


def flip(image: Tensor, target: Target, direction: FlipDirection) -> tuple[Tensor, Target]:
    """Return the mirrored sample: exchanged left and right, top and bottom, or (diagonal) both."""
    axes = {"horizontal": [-1], "vertical": [-2], "diagonal": [-2, -1]}[direction]
    size = (image.shape[-2], image.shape[-1])
    moved = _move_boxes(target, lambda rboxes: flip_rboxes(rboxes, direction, size))
    return image.flip(axes), moved


def random_flip(
    image: Tensor, target: Target, preprocessing: PreprocessingSection, generator: Generator
) -> tuple[Tensor, Target]:
    """Return the sample with each enabled flip drawn by itself, at even odds.

    Horizontal and vertical together give four orientations, the original one in a quarter of the
    draws. The drawn flips are done in one move: two of them on one axis cancel.
    """
    drawn = torch.rand(3, generator=generator) < _FLIP_PROBABILITY
    horizontal = preprocessing.enable_flip_horizontal and bool(drawn[0])
    vertical = preprocessing.enable_flip_vertical and bool(drawn[1])
    diagonal = preprocessing.enable_flip_diagonal and bool(drawn[2])
    flip_x, flip_y = horizontal != diagonal, vertical != diagonal
    if flip_x and flip_y:
        return flip(image, target, "diagonal")
    if flip_x:
        return flip(image, target, "horizontal")
    if flip_y:
        return flip(image, target, "vertical")
    return image, target


def rotate(image: Tensor, target: Target, angle_deg: float) -> tuple[Tensor, Target]:
    """Return the sample turned about the image's centre, clockwise on the screen.

    Whole quarter turns move pixels and boxes exactly; by an odd number of them height and width
    change places. Any other angle keeps the canvas: the image is resampled bilinearly, what comes
    from outside is 0 (the mean colour of a normalised image), and `keep_visible` applies.

    Args:
        image: (3, H, W) float.
        target: Ground truth in px of ``image``.
        angle_deg: Degrees, any.

    Returns:
        The turned image and target.

    Raises:
        TypeError: If an image that must be resampled is not floating-point.
    """
    quarter_turns, rest = divmod(angle_deg, _QUARTER_TURN)
    if rest == 0:
        return _turn_by_quarters(image, target, int(quarter_turns) % 4)
    if not image.is_floating_point():
        raise TypeError(f"image must be floating-point to be resampled, got {image.dtype}")
    height, width = image.shape[-2:]
    angle = math.radians(angle_deg)
    moved = _move_boxes(
        target, lambda rboxes: rotate_rboxes(rboxes, angle, (width / 2, height / 2))
    )
    cos, sin = math.cos(angle), math.sin(angle)
    # From a point of the result to its origin, both relative to the centre in half widths and
    # half heights: the reverse turn.
    backwards = torch.tensor([[[cos, sin * height / width, 0], [-sin * width / height, cos, 0]]])
    grid = functional.affine_grid(backwards, [1, 1, height, width], align_corners=False)
    turned = functional.grid_sample(image[None], grid.to(image.dtype), align_corners=False)[0]
    return turned, keep_visible(moved, (height, width))


def random_rotate(
    image: Tensor,
    target: Target,
    preprocessing: PreprocessingSection,
    rect_labels: list[int],
    generator: Generator,
) -> tuple[Tensor, Target]:
    """Return the sample turned by a random angle with probability ``random_rotate_prob``.

    Args:
        image: (3, H, W) float.
        target: Ground truth in px of ``image``.
        preprocessing: ``random_rotate_prob``, ``random_rotate_angle_range``.
        rect_labels: A sample that holds one of these labels (as object or ignore region) is turned
            by a quarter, a half or three quarters, as far as the angle range allows it.
        generator: Source of the draws.

    Returns:
        The turned sample, see `rotate`.
    """
    chance, position = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    if chance >= preprocessing.random_rotate_prob:
        return image, target
    limit = preprocessing.random_rotate_angle_range
    if not _holds_any(target, rect_labels):
        return rotate(image, target, (2 * position - 1) * limit)
    turns = [turn for turn in _TURNS if abs(turn) <= limit]
    if not turns:
        return image, target
    return rotate(image, target, turns[int(position * len(turns))])


def crop(
    image: Tensor, target: Target, corner: tuple[int, int], size: tuple[int, int]
) -> tuple[Tensor, Target]:
    """Return the part with its top left ``corner`` (x, y) and ``size`` (height, width).

    `keep_visible` decides on objects that the cut meets.
    """
    x, y = corner
    height, width = size
    moved = _move_boxes(target, lambda rboxes: shift_rboxes(rboxes, -x, -y))
    part = image[..., y : y + height, x : x + width]
    return part, keep_visible(moved, (part.shape[-2], part.shape[-1]))


def random_crop(
    image: Tensor, target: Target, size: tuple[int, int], generator: Generator
) -> tuple[Tensor, Target]:
    """Return a part of ``size`` (height, width) at a random place; axes that fit stay whole."""
    spare_y = max(0, image.shape[-2] - size[0])
    spare_x = max(0, image.shape[-1] - size[1])
    drawn = torch.rand(2, generator=generator, dtype=torch.float64).tolist()
    if spare_x == 0 and spare_y == 0:
        return image, target
    corner = (int(drawn[0] * (spare_x + 1)), int(drawn[1] * (spare_y + 1)))
    return crop(image, target, corner, size)


def keep_visible(target: Target, image_size: tuple[int, int]) -> Target:
    """Return the ground truth of what a moved image still shows.

    An object stays one while its centre is inside; with its centre outside it becomes an ignore
    region if a part is visible, and goes if none is. Ignore regions and look-alikes stay while a
    part is visible.

    Args:
        target: Ground truth in px of the image.
        image_size: Height and width, px.

    Returns:
        The same boxes uncut, sorted out; both ignore entries are present.
    """
    height, width = image_size
    rboxes, labels = target["rboxes"], target["labels"]
    ignored = target.get("rboxes_ignore", rboxes[:0])
    ignored_labels = target.get("labels_ignore", labels[:0])
    cx, cy = rboxes[:, 0], rboxes[:, 1]
    inside = (cx >= 0) & (cx < width) & (cy >= 0) & (cy < height)
    ignored = torch.cat([ignored, rboxes[~inside]])
    ignored_labels = torch.cat([ignored_labels, labels[~inside]])
    visible = _is_visible(ignored, image_size)
    kept: Target = {
        **target,
        "rboxes": rboxes[inside],
        "labels": labels[inside],
        "rboxes_ignore": ignored[visible],
        "labels_ignore": ignored_labels[visible],
    }
    if "rboxes_lookalike" in target:
        lookalikes = target["rboxes_lookalike"]
        kept["rboxes_lookalike"] = lookalikes[_is_visible(lookalikes, image_size)]
    return kept


def _is_visible(rboxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Return (N,) bool: does a part of the box lie in the image?"""
    height, width = image_size
    canvas = rboxes.new_tensor([[width / 2, height / 2, width, height, 0]])
    return box_iou_rotated(rboxes, canvas, mode="iof")[:, 0] > 0


def _finish(image: Tensor, preprocessing: PreprocessingSection) -> Tensor:
    """Return a normalised image in its final size, its pixels in a row."""
    if preprocessing.resize_mode == "pad":
        image = pad_to_target(image, preprocessing.target_size)
    return image.contiguous()


def _turn_by_quarters(image: Tensor, target: Target, turns: int) -> tuple[Tensor, Target]:
    """Return the sample after 0 to 3 quarter turns, clockwise on the screen."""
    height, width = image.shape[-2:]
    shift = (height - width) / 2 if turns % 2 else 0.0  # the centre moves to (H / 2, W / 2)

    def move(rboxes: Tensor) -> Tensor:
        turned = rotate_rboxes(rboxes, turns * math.pi / 2, (width / 2, height / 2))
        return shift_rboxes(turned, shift, -shift)

    return torch.rot90(image, -turns, dims=(-2, -1)), _move_boxes(target, move)


def _move_boxes(target: Target, move: Callable[[Tensor], Tensor]) -> Target:
    """Return the target with ``move`` applied to all its boxes."""
    moved: Target = {**target, "rboxes": move(target["rboxes"])}
    if "rboxes_ignore" in target:
        moved["rboxes_ignore"] = move(target["rboxes_ignore"])
    if "rboxes_lookalike" in target:
        moved["rboxes_lookalike"] = move(target["rboxes_lookalike"])
    return moved


def _holds_any(target: Target, labels: list[int]) -> bool:
    """Return whether an object or ignore region has one of ``labels``."""
    held = torch.cat([target["labels"], target.get("labels_ignore", target["labels"][:0])])
    return bool(torch.isin(held, held.new_tensor(labels)).any())
