"""Section ``tiling``."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from obbflow.config.section import Section

WORK_KEYS = ("executor", "scheduler_address", "num_workers")
"""Keys that say who does the work, and change no tile."""


class TilingSection(Section):
    """How scenes are cut into tiles; the overlap is ``dataset.overlap``."""

    tile_size: int = Field(1024, ge=32, description="side of the square tiles, px")
    extra_tile_sizes: tuple[Annotated[int, Field(ge=32)], ...] = Field(
        (), description="training scenes are cut into tiles of these sides too, px"
    )
    scales: tuple[Annotated[float, Field(ge=0.05, le=8)], ...] = Field(
        (1.0,),
        min_length=1,
        description="training scenes are resized by each of these factors and cut; 1 is among "
        "them. Validation scenes are cut once, at scale 1 into tiles of tile_size",
    )
    window_rule: Literal["obbflow", "mmrotate"] = Field(
        "obbflow",
        description="mmrotate: column by column, and without the tiles that an image hardly "
        "fills (min_image_rate), as MMRotate's splitting tool has it",
    )
    min_image_rate: float = Field(
        0.6,
        ge=0,
        lt=1,
        description="only for window_rule mmrotate: tiles of which the image fills no larger share "
        "are left out; when that would be all of them, the best filled ones stay",
    )
    corners: Literal["keep_angle", "untouched"] = Field(
        "keep_angle",
        description="of objects that a tile cuts: keep_angle boxes the visible part in the "
        "object's own frame, untouched keeps the whole box",
    )
    min_visible: float = Field(
        0.7, gt=0, le=1, description="less of an object's area inside makes it an ignore region"
    )
    keep_empty: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of training tiles without any object or look-alike that is kept",
    )
    image_format: Literal["png", "jpg"] = Field("png", description="of the tile files")
    jpeg_quality: int = Field(95, ge=1, le=100)
    jpeg_chroma: Literal["4:4:4", "4:2:0"] = Field(
        "4:4:4",
        description="4:2:0 halves the resolution of colour, as most programs do: smaller and "
        "faster, and small coloured objects pale",
    )
    executor: Literal["process", "thread", "serial", "dask"] = Field(
        "process", description="who cuts: processes, threads, this process alone, a Dask cluster"
    )
    scheduler_address: str | None = Field(
        None,
        description="only for executor dask: of its scheduler, tcp://host:8786; null starts "
        "num_workers processes on this machine",
    )
    num_workers: int = Field(0, ge=0, description="processes or threads; 0: one a core")

    @model_validator(mode="after")
    def _name_each_size_once(self) -> Self:
        sizes = (self.tile_size, *self.extra_tile_sizes)
        if len(set(sizes)) < len(sizes):
            raise ValueError(
                f"extra_tile_sizes: each size once and tile_size not among them, got {sizes}"
            )
        return self

    @model_validator(mode="after")
    def _hold_scale_1_once(self) -> Self:
        if 1.0 not in self.scales or len(set(self.scales)) < len(self.scales):
            raise ValueError(
                f"scales: each factor once and 1 among them, as validation and prediction look at "
                f"scenes at scale 1; got {self.scales}"
            )
        return self

    def of_tiles(self) -> dict[str, Any]:
        """Return the keys that tiles and their labels depend on, in YAML-friendly types."""
        unused = set(WORK_KEYS)
        if self.image_format == "png":
            unused.update(("jpeg_quality", "jpeg_chroma"))
        if self.window_rule == "obbflow":
            unused.add("min_image_rate")
        return self.model_dump(mode="json", exclude=unused)
