"""Section ``dataset``."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from obbflow.config.section import Section

Percentile = Annotated[float, Field(ge=0, le=100)]


class DatasetSection(Section):
    """Where images and labels come from, and which objects count."""

    data_root: Path | None = Field(
        None,
        description="folder of the data set; for dota with train/ and val/ (each images/ and "
        "labelTxt/), or with images/ and labelTxt/ alone; null for the demo scenes, or when ready "
        "tiles are all there is",
    )
    format: Literal[
        "dota", "synthetic", "airbus_playground", "hrsc", "fair1m", "yolo_obb", "coco"
    ] = Field(
        "dota",
        description="of the labels in data_root, see docs/data.md. synthetic draws the demo scenes "
        "in the project's own data folder; with a data_root or tiles given, these are read (as "
        "dota) and nothing is drawn",
    )
    train_tiles_dir: Path | None = Field(
        None,
        description="root of ready training tiles: images and DOTA labels, in images/ and "
        "labelTxt/ or side by side, used as they are and never cut; beside data_root or alone",
    )
    val_tiles_dir: Path | None = Field(None, description="the same for validation")
    train_tiles_dirs: tuple[Path, ...] | None = Field(
        None, description="several such roots, read in place as one union"
    )
    val_tiles_dirs: tuple[Path, ...] | None = Field(None, description="the same for validation")
    same_folder: bool = Field(
        False, description="images and DOTA label files of data_root lie side by side"
    )
    annotations_file: Path | None = Field(
        None,
        description="airbus_playground: annotations, counted from data_root; null: annotations.csv "
        "where it exists, else the GeoJSON files of the export",
    )
    split_file: Path | None = Field(
        None,
        description="airbus_playground: a fold number, train or val for each tile, counted from "
        "data_root; null: split.csv where it exists, else all tiles, split by val_fraction",
    )
    val_split_id: int = Field(
        0, ge=0, description="airbus_playground: fold used for validation; no effect on train / val"
    )
    train_includes_val: bool = Field(
        False,
        description="airbus_playground: train on all folds; the validation fold only monitors",
    )
    difficult_tags: tuple[str, ...] | None = Field(
        None, description="airbus_playground: tags that mark an object difficult"
    )
    dota_version: Literal["1.0", "1.5", "2.0"] | None = Field(
        None,
        description="which labelTxt-v* folder is read where there are several, and the list of 15, "
        "16 or 18 classes that labels are compared with; a difference is only reported",
    )
    bands: tuple[PositiveInt, ...] | None = Field(
        None,
        description="bands of the images that become red, green and blue, or the one that becomes "
        "grey, counted from 1; null: the first three, or the first of fewer",
    )
    stretch_percentiles: tuple[Percentile, Percentile] = Field(
        (0.1, 99.9),
        description="samples of more than 8 bits: these percentiles of an image become 0 and 255",
    )
    strict: bool = Field(
        False,
        description="stop at any error in data_issues: a broken image, a line that is no object, "
        "an image in train and val; false reports them and goes on",
    )
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
    lookalike_classes: tuple[str, ...] | None = Field(
        None,
        description="classes that look like the wanted ones and are none: never a class, no "
        "ignore region; region proposals on them are background and are sampled first. Names "
        "after map_labels",
    )
    difficult_strategy: Literal["drop", "ignore", "keep"] = Field(
        "drop",
        description="difficult objects: drop when read, keep as ignore regions, or keep as "
        "objects; look-alikes stay such",
    )
    filter_empty_gt: bool = Field(False, description="leave out training tiles without an object")
    max_train_samples: int | None = Field(None, ge=1, description="cap on training tiles")
    max_val_samples: int | None = Field(None, ge=1, description="cap on validation tiles")
    max_samples_shuffle_seed: int | None = Field(
        None, description="null: the first tiles; else a seeded choice"
    )
    tile_metrics_csv: Path | None = Field(
        None,
        description="scores of training tiles from an earlier evaluation, one row a tile, named in "
        "a column tile_id or image_id; tiles that scored badly are drawn more often",
    )
    hard_tile_metric_column: str = Field("f1", description="column of the score")
    hard_tile_threshold: float = Field(0.8, description="a tile that scores below it is hard")
    hard_tile_oversample_factor: float = Field(
        2.0,
        ge=1,
        allow_inf_nan=False,
        description="hard tiles are drawn this many times as often as others; an epoch stays as "
        "long as without",
    )

    hrsc_classes: Literal["ship", "type"] = Field(
        "ship", description="HRSC2016: one class, or its 31 types such as Nimitz and Container"
    )
    coco_angle: (
        Literal[
            "degrees_clockwise",
            "degrees_counter_clockwise",
            "radians_clockwise",
            "radians_counter_clockwise",
        ]
        | None
    ) = Field(
        None,
        description="COCO with rotated boxes (bbox of cx, cy, w, h, angle): how the angle turns "
        "the w side away from the x axis, as seen on the screen; Detectron2 writes "
        "degrees_counter_clockwise. Not needed for polygons",
    )

    @field_validator("dota_version", mode="before")
    @classmethod
    def _take_a_number(cls, value: object) -> object:
        """YAML and the command line read 1.5 as a number."""
        return f"{value:.1f}" if isinstance(value, int | float) else value

    @field_validator("bands")
    @classmethod
    def _are_one_or_three(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and len(value) not in {1, 3}:
            raise ValueError(f"must be one band or three, got {len(value)}: {list(value)}")
        return value

    @field_validator("stretch_percentiles")
    @classmethod
    def _rise(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise ValueError(f"the first must be below the second, got {list(value)}")
        return value

    @model_validator(mode="after")
    def _name_lookalikes_once(self) -> Self:
        for key in ("ignore_labels", "allowed_classes"):
            both = sorted(set(self.lookalike_classes or ()) & set(getattr(self, key) or ()))
            if both:
                raise ValueError(
                    f"lookalike_classes: {', '.join(map(repr, both))} also in dataset.{key}; a "
                    "look-alike is background, so name it in one of the two only"
                )
        return self

    @property
    def draws_demo(self) -> bool:
        """Whether the demo scenes are the data set."""
        return self.format == "synthetic" and not self._roots

    @property
    def place(self) -> str:
        """Where the data set lies, for messages."""
        return ", ".join(map(str, self._roots)) or "the demo scenes"

    def tile_roots(self, split: str) -> tuple[Path, ...]:
        """Return the roots of ready tiles for "train" or "val"."""
        one, many = (
            (self.train_tiles_dir, self.train_tiles_dirs)
            if split == "train"
            else (self.val_tiles_dir, self.val_tiles_dirs)
        )
        return (*(() if one is None else (one,)), *(many or ()))

    @property
    def _roots(self) -> tuple[Path, ...]:
        """All folders of the user's own, data_root first."""
        root = () if self.data_root is None else (self.data_root,)
        return (*root, *self.tile_roots("train"), *self.tile_roots("val"))

    @model_validator(mode="after")
    def _need_a_root(self) -> Self:
        if self.format != "synthetic" and self.data_root is None and not self.tile_roots("train"):
            raise ValueError(
                f"data_root: required for dataset.format {self.format!r}; set dataset.data_root or "
                "the environment variable OBBFLOW_DATA_ROOT to the folder with your images and "
                "labels, or name ready tiles in dataset.train_tiles_dirs"
            )
        return self


class DemoSection(Section):
    """The demo scenes: sizes in px as [width, height], one entry a scene."""

    train_sizes: tuple[tuple[int, int], ...] = Field(((900, 700),), min_length=1)
    val_sizes: tuple[tuple[int, int], ...] = Field(((700, 600),), min_length=1)
    seed: int = Field(0, ge=0, description="seed of the scenes; apart from experiment.seed")
