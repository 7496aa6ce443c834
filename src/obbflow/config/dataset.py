"""Section ``dataset``."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from obbflow.config.section import Section


class DatasetSection(Section):
    """Where images and labels come from, and which objects count."""

    data_root: Path | None = Field(
        None,
        description="folder with train/ and val/ (each images/ and labelTxt/), or with images/ and "
        "labelTxt/ alone; null only for the demo scenes",
    )
    format: Literal["dota", "synthetic"] = Field(
        "dota",
        description="synthetic draws the demo scenes in the project's own data folder; with a "
        "data_root given, the user's images are read (as dota) and nothing is drawn",
    )
    same_folder: bool = Field(False, description="images and label files lie side by side")
    overlap: int = Field(
        16, ge=0, multiple_of=2, description="overlap of neighbouring tiles, px, even"
    )
    val_fraction: float = Field(
        0.2, gt=0, lt=1, description="share of scenes used for validation when no split is given"
    )
    ignore_labels: tuple[str, ...] | None = Field(None, description="classes dropped when read")
    map_labels: dict[str, str] | None = Field(
        None, description="rename or merge classes: exact match, before ignore and allowed"
    )
    allowed_classes: tuple[str, ...] | None = Field(
        None, description="whitelist; any other class is an error naming file and line"
    )
    difficult_strategy: Literal["drop", "ignore", "keep"] = Field(
        "drop",
        description="difficult objects: drop when read, keep as ignore regions, or keep as objects",
    )
    filter_empty_gt: bool = Field(False, description="leave out training tiles without an object")
    max_train_samples: int | None = Field(None, ge=1, description="cap on training tiles")
    max_val_samples: int | None = Field(None, ge=1, description="cap on validation tiles")
    max_samples_shuffle_seed: int | None = Field(
        None, description="null: the first tiles; else a seeded choice"
    )

    @property
    def draws_demo(self) -> bool:
        """Whether the demo scenes are the data set."""
        return self.format == "synthetic" and self.data_root is None

    @property
    def place(self) -> str:
        """Where the data set lies, for messages."""
        return "the demo scenes" if self.data_root is None else str(self.data_root)

    @model_validator(mode="after")
    def _need_a_root(self) -> Self:
        if self.format != "synthetic" and self.data_root is None:
            raise ValueError(
                "data_root: required for dataset.format 'dota'; set dataset.data_root or the "
                "environment variable OBBFLOW_DATA_ROOT to the folder with your images and labels"
            )
        return self


class DemoSection(Section):
    """The demo scenes: sizes in px as [width, height], one entry a scene."""

    train_sizes: tuple[tuple[int, int], ...] = Field(((900, 700),), min_length=1)
    val_sizes: tuple[tuple[int, int], ...] = Field(((700, 600),), min_length=1)
    seed: int = Field(0, ge=0, description="seed of the scenes; apart from experiment.seed")
