"""Images of any size -> detections, window by window.

Windows have the side of the training tiles; an image that is smaller gives one window of its own
size, as in training. Shapes: k detections of one window.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
from torch import Generator, Tensor

from obbflow.data.images import PixelSource, open_image
from obbflow.data.progress import track
from obbflow.data.tiling import windows
from obbflow.data.transforms import EvalTransform
from obbflow.errors import DataError
from obbflow.geometry import normalize_le90, scale_rboxes, shift_rboxes
from obbflow.inference.detector import Detector, WindowSettings
from obbflow.inference.tables import PREDICTION_IMAGES, WINDOW_DETECTIONS
from obbflow.structures import Detections, Target
from obbflow.tables import RBOX, check_table, make_table


@dataclass(frozen=True)
class Window:
    """A rectangle of an image, px, and whether each side borders on another window."""

    image_id: str
    x: int
    y: int
    width: int
    height: int
    has_left: bool
    has_top: bool
    has_right: bool
    has_bottom: bool


@dataclass(frozen=True)
class WindowPixels:
    """A window as the model sees it: (3, H, W) float32, and its px per px of the image (x, y)."""

    window: Window
    pixels: Tensor
    scale: tuple[float, float]


def predict_images(
    detector: Detector,
    images: pd.DataFrame,
    *,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
    batch_size: int = 1,
) -> pd.DataFrame:
    """Return what ``detector`` finds in every window of every image.

    Windows of one size share a batch, so that the result does not depend on ``batch_size``.

    Args:
        detector: Its model is on ``device`` and in evaluation mode.
        images: Table ``PREDICTION_IMAGES``.
        device: Where the model is.
        autocast_dtype: Type of mixed precision, None for float32.
        batch_size: Windows in one forward pass.

    Returns:
        Table ``WINDOW_DETECTIONS``, in the order of images and windows, best score first within
        one; with the duplicates of overlapping windows.

    Raises:
        DataError: If an image is broken, or not of the size that the table says.
    """
    check_table(images, PREDICTION_IMAGES, "prediction_images")
    settings = detector.settings
    plan = [
        (path, list_windows(image_id, width, height, settings.tile_size, settings.overlap))
        for image_id, path, width, height in images[list(PREDICTION_IMAGES)].itertuples(index=False)
    ]
    total = sum(len(of_image) for _, of_image in plan)
    pixels = track(_read_windows(plan, detector), total, "Looking at windows")
    found: list[tuple[Window, Detections]] = []
    for batch in _batches(pixels, batch_size):
        detections = _detect(detector, batch, device, autocast_dtype)
        found += [
            (item.window, _to_image(each, item, settings))
            for item, each in zip(batch, detections, strict=True)
        ]
    return _tabulate(found, settings.class_names)


def list_windows(
    image_id: str, width: int, height: int, tile_size: int, overlap: int
) -> list[Window]:
    """Return the windows of an image, row by row; they end at its borders.

    Args:
        image_id: Name of the image.
        width: Of the image, px.
        height: The same.
        tile_size: Side of a window, px.
        overlap: Of neighbours, px, below ``tile_size``.
    """
    return [
        Window(
            image_id=image_id,
            x=x,
            y=y,
            width=min(tile_size, width - x),
            height=min(tile_size, height - y),
            has_left=x > 0,
            has_top=y > 0,
            has_right=x + tile_size < width,
            has_bottom=y + tile_size < height,
        )
        for x, y in windows(width, height, tile_size, overlap)
    ]


def is_central(rboxes: Tensor, window: Window, margin: float) -> Tensor:
    """Return which boxes are not left to a neighbouring window.

    Args:
        rboxes: (k, 5), px of the window.
        window: Where it lies.
        margin: A centre closer than this to a side with a neighbour is the neighbour's, px.

    Returns:
        (k,) bool.
    """
    cx, cy = rboxes[:, 0], rboxes[:, 1]
    keep = torch.ones(len(rboxes), dtype=torch.bool, device=rboxes.device)
    if window.has_left:
        keep &= cx >= margin
    if window.has_right:
        keep &= cx <= window.width - margin
    if window.has_top:
        keep &= cy >= margin
    if window.has_bottom:
        keep &= cy <= window.height - margin
    return keep


def _read_windows(
    plan: Sequence[tuple[str, list[Window]]], detector: Detector
) -> Iterator[WindowPixels]:
    """Yield every window; each image is opened once, when its turn comes."""
    transform = EvalTransform(detector.preprocessing)
    settings = detector.settings
    tile_size = settings.tile_size
    for path, of_image in plan:
        stretch = settings.stretch_percentiles
        with open_image(Path(path), bands=settings.bands, stretch=stretch) as image:
            last = of_image[-1]
            expected = (last.x + last.width, last.y + last.height)
            if (image.width, image.height) != expected:
                raise DataError(
                    f"{path}: {image.width} x {image.height} px, but {expected[0]} x {expected[1]} "
                    "when it was read first; start again once nobody writes to the folder"
                )
            for window in of_image:
                part, target = transform(
                    _crop(image, window), _no_objects(), (tile_size, tile_size), Generator()
                )
                scale_x, scale_y = target["scale"].tolist()
                yield WindowPixels(window, part, (scale_x, scale_y))


def _crop(image: PixelSource, window: Window) -> Tensor:
    """Return a window of the image, (3, H, W) uint8 RGB."""
    pixels = image.read(window.x, window.y, window.width, window.height)
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _no_objects() -> Target:
    return Target(rboxes=torch.zeros(0, 5), labels=torch.zeros(0, dtype=torch.int64))


def _batches(items: Iterable[WindowPixels], size: int) -> Iterator[list[WindowPixels]]:
    """Yield runs of up to ``size`` windows of one shape."""
    batch: list[WindowPixels] = []
    for item in items:
        if batch and (len(batch) == size or batch[0].pixels.shape != item.pixels.shape):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


@torch.inference_mode()
def _detect(
    detector: Detector,
    batch: Sequence[WindowPixels],
    device: torch.device,
    autocast_dtype: torch.dtype | None,
) -> list[Detections]:
    """Return the model's detections; an error names the windows."""
    precision = torch.autocast(
        device.type, dtype=autocast_dtype or torch.bfloat16, enabled=autocast_dtype is not None
    )
    try:
        with precision:
            found: list[Detections] = detector.model([item.pixels.to(device) for item in batch])
    except Exception as error:
        names = ", ".join(
            f"{each.window.image_id} at {each.window.x},{each.window.y}" for each in batch
        )
        error.add_note(f"while detecting objects in the windows {names}")
        raise
    return found


def _to_image(found: Detections, item: WindowPixels, settings: WindowSettings) -> Detections:
    """Return those of the detections that stay, on the CPU in float64 and px of the image."""
    scores, labels = found["scores"].double().cpu(), found["labels"].cpu()
    scale_x, scale_y = item.scale
    rboxes = normalize_le90(scale_rboxes(found["rboxes"].double().cpu(), 1 / scale_x, 1 / scale_y))
    lowest = scores.new_tensor(list(settings.score_thresholds.values()))
    keep = scores >= lowest[labels - 1]
    keep &= is_central(rboxes, item.window, settings.ignore_margin)
    order = scores.argsort(descending=True, stable=True)
    order = order[keep[order]]
    shifted = shift_rboxes(rboxes[order], item.window.x, item.window.y)
    return Detections(rboxes=shifted, scores=scores[order], labels=labels[order])


def _tabulate(found: Sequence[tuple[Window, Detections]], class_names: list[str]) -> pd.DataFrame:
    """Return the table of all windows."""
    if not found:
        return make_table([], WINDOW_DETECTIONS)
    of_row = [window for window, each in found for _ in range(len(each["scores"]))]
    rboxes = torch.cat([each["rboxes"] for _, each in found])
    labels = torch.cat([each["labels"] for _, each in found])
    columns: dict[str, object] = {
        "image_id": [window.image_id for window in of_row],
        "window_x": [window.x for window in of_row],
        "window_y": [window.y for window in of_row],
        "window_width": [window.width for window in of_row],
        "window_height": [window.height for window in of_row],
        "class_name": [class_names[label - 1] for label in labels.tolist()],
        "score": torch.cat([each["scores"] for _, each in found]).numpy(),
    }
    columns |= {name: rboxes[:, place].numpy() for place, name in enumerate(RBOX)}
    return make_table(columns, WINDOW_DETECTIONS)
