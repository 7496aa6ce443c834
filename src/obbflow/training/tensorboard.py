"""What TensorBoard shows of a run; the metrics file is the truth, this is a view of it."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from obbflow.config import TensorboardSection
from obbflow.geometry import rbox_to_qbox
from obbflow.tables import RBOX
from obbflow.training.metrics import MetricTracker, Row
from obbflow.training.steps import StepResult

logger = logging.getLogger(__name__)

_TRUTH, _FOUND, _IGNORED = (80, 220, 100), (255, 90, 60), (150, 150, 150)


class TensorboardLog:
    """Writes event files; a fault of TensorBoard switches it off and never ends the training."""

    def __init__(self, writer: Any, section: TensorboardSection) -> None:  # noqa: ANN401
        """Write through ``writer``, a ``SummaryWriter``."""
        self._writer = writer
        self._section = section

    @classmethod
    def open(
        cls, folder: Path, section: TensorboardSection, *, first_step: int
    ) -> "TensorboardLog | None":
        """Return a log in ``folder``; None when it is not wanted or cannot be had.

        Args:
            folder: Of the event files.
            section: Whether and what to show.
            first_step: Steps from here on replace those that an interrupted run has written.
        """
        if not section.enabled:
            return None
        try:
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder), purge_step=first_step)
        except Exception as error:  # a broken installation raises anything
            logger.warning(
                "TensorBoard cannot be used (%s: %s), training goes on without it. Install it with "
                "`pip install tensorboard`, or set tensorboard.enabled=false.",
                type(error).__name__,
                error,
            )
            return None
        return cls(writer, section)

    def log_step(self, step: int, result: StepResult, rates: Sequence[float]) -> None:
        """Show losses, rates and gradient norms of one optimizer step.

        Args:
            step: Optimizer steps since the start of the run, from 1.
            result: Of this step.
            rates: Learning rate of each group.
        """
        scalars = {"train/learning_rate": rates[0]}
        if len(rates) > 1:
            scalars |= {f"train/learning_rate_group_{n}": rate for n, rate in enumerate(rates)}
        means = MetricTracker()
        for values, images in result.losses:
            means.update(values, images)
        scalars |= {f"train/{name}": value for name, value in means.summary().items()}
        for name, norm in result.norms.items():
            scalars["train/grad_norm" if name == "total" else f"train/grad_norm_{name}"] = norm
        self._guarded(lambda writer: _add_scalars(writer, scalars, step))

    def log_epoch(self, row: Row) -> None:
        """Show the validation metrics and the speed of an epoch."""
        shown = {
            name: float(value)
            for name, value in row.items()
            if value is not None and not name.startswith(("train/", "lr", "grad_norm", "epoch"))
        }
        epoch = int(row["epoch"] or 0)
        self._guarded(lambda writer: _add_scalars(writer, shown, epoch))

    def log_images(self, epoch: int, dataset: Any, detections: pd.DataFrame) -> None:  # noqa: ANN401
        """Show tiles with their objects (green), ignore regions (grey) and detections (red).

        Args:
            epoch: From 1.
            dataset: A `TileDataset`; nothing is shown of data sets without ``tile_image``.
            detections: Table ``DETECTIONS`` of those to draw, boxes in px of the tiles.
        """
        if not self._section.log_images or not hasattr(dataset, "tile_image"):
            return

        def draw(writer: Any) -> None:  # noqa: ANN401
            truth = dataset.ground_truth
            for index in range(min(self._section.max_images_to_log, len(dataset.tile_ids))):
                name = dataset.tile_ids[index]
                picture = draw_tile(
                    dataset.tile_image(index),
                    truth[truth["image_id"] == name],
                    detections[detections["image_id"] == name],
                )
                writer.add_image(f"val_images/{name}", picture, epoch)

        self._guarded(draw)

    def close(self) -> None:
        """Write what is waiting and close the files."""
        self._guarded(lambda writer: writer.close())

    def _guarded(self, write: Callable[[Any], None]) -> None:
        if self._writer is None:
            return
        try:
            write(self._writer)
        except Exception as error:  # full disk, broken package: only the view is lost
            self._writer = None
            logger.warning(
                "TensorBoard is switched off for the rest of this run (%s: %s); metrics and "
                "checkpoints are not affected",
                type(error).__name__,
                error,
            )


def draw_tile(image: Tensor, truth: pd.DataFrame, detections: pd.DataFrame) -> Tensor:
    """Return a picture of a tile with its boxes.

    Args:
        image: (3, H, W) uint8, RGB.
        truth: Table ``GROUND_TRUTH`` of this tile, px.
        detections: Table ``DETECTIONS`` of this tile, px.

    Returns:
        (3, H, W) uint8.
    """
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    pen = ImageDraw.Draw(picture)
    ignored = truth["difficult"].to_numpy(dtype=bool)
    for table, colour in (
        (truth[ignored], _IGNORED),
        (truth[~ignored], _TRUTH),
        (detections, _FOUND),
    ):
        rboxes = torch.tensor(table[list(RBOX)].to_numpy(dtype="float64"))
        for corners in rbox_to_qbox(rboxes).tolist():
            pen.polygon(corners, outline=colour, width=2)
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    return pixels.reshape(picture.height, picture.width, 3).permute(2, 0, 1).contiguous()


def _add_scalars(writer: Any, scalars: dict[str, float], step: int) -> None:  # noqa: ANN401
    for name, value in scalars.items():
        writer.add_scalar(name, value, step)
