"""Images of different sizes -> one padded batch."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

ImageSize = tuple[int, int]  # height, width of the content, px


def pad_batch(
    images: Sequence[Tensor], divisor: int, *, channels_last: bool = False
) -> tuple[Tensor, list[ImageSize]]:
    """Return images as one batch, padded with 0 at the right and the bottom.

    Args:
        images: (3, H, W) each; sizes may differ.
        divisor: Height and width of the batch are multiples of it.
        channels_last: Memory layout of the batch; that of the model's weights.

    Returns:
        (B, 3, H', W') and the (height, width) of each image's content.

    Raises:
        ValueError: If there is no image, or one is not (3, H, W).
    """
    if not images:
        raise ValueError("a batch needs at least one image")
    for image in images:
        if image.ndim != 3 or image.shape[0] != 3:
            raise ValueError(f"images must be (3, H, W), got {tuple(image.shape)}")
    sizes = [(int(image.shape[1]), int(image.shape[2])) for image in images]
    height = -(-max(size[0] for size in sizes) // divisor) * divisor
    width = -(-max(size[1] for size in sizes) // divisor) * divisor
    batch = images[0].new_zeros(len(images), 3, height, width)
    for row, (image, size) in enumerate(zip(images, sizes, strict=True)):
        batch[row, :, : size[0], : size[1]] = image
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return batch.contiguous(memory_format=layout), sizes


def is_channels_last(module: nn.Module) -> bool:
    """Return whether convolutions lie in the channels-last layout, which images then share."""
    weight = next(each for each in module.parameters() if each.ndim == 4)
    return weight.is_contiguous(memory_format=torch.channels_last)
