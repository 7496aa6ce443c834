"""What travels between a data set, a model and the evaluation: typed dictionaries of tensors."""

from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

from torch import Tensor, device


class Target(TypedDict):
    """Ground truth of one image.

    ``rboxes`` (n, 5) px and radians, le90, in the image as the model sees it; ``labels`` (n,)
    int64, 1..C. ``rboxes_ignore`` (m, 5) and ``labels_ignore`` (m,) are regions that count neither
    as object nor as background. ``rboxes_lookalike`` (k, 5) are things that look like objects and
    are background. ``scale`` (2,) is (x, y) px of this image per px of the tile:
    detections divided by it are in the tile's own pixels. ``index`` () int64 is the sample's row.
    """

    rboxes: Tensor
    labels: Tensor
    rboxes_ignore: NotRequired[Tensor]
    labels_ignore: NotRequired[Tensor]
    rboxes_lookalike: NotRequired[Tensor]
    scale: NotRequired[Tensor]
    index: NotRequired[Tensor]


class Detections(TypedDict):
    """Detections of one image: ``rboxes`` (k, 5), ``scores`` (k,), ``labels`` (k,) int64, 1..C."""

    rboxes: Tensor
    scores: Tensor
    labels: Tensor


def collate(samples: Sequence[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[Target]]:
    """Return a batch as (images, targets): lists, because images may differ in size."""
    images = [image for image, _ in samples]
    targets = [target for _, target in samples]
    return images, targets


def move_to(
    images: Sequence[Tensor], targets: Sequence[Target], where: device
) -> tuple[list[Tensor], list[Target]]:
    """Return a batch on device ``where``; copies from pinned memory do not block."""
    moved = [
        cast(
            "Target",
            {
                name: cast("Tensor", value).to(where, non_blocking=True)
                for name, value in target.items()
            },
        )
        for target in targets
    ]
    return [image.to(where, non_blocking=True) for image in images], moved
