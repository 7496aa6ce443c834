"""Section ``tiling``."""

from typing import Literal

from pydantic import Field

from obbflow.config.section import Section


class TilingSection(Section):
    """How scenes are cut into tiles; the overlap is ``dataset.overlap``."""

    tile_size: int = Field(1024, ge=32, description="side of the square tiles, px")
    min_visible: float = Field(
        0.7, gt=0, le=1, description="less of an object's area inside makes it an ignore region"
    )
    keep_empty: float = Field(
        1.0, ge=0, le=1, description="share of training tiles without any object that is kept"
    )
    image_format: Literal["png", "jpg"] = Field("png", description="of the tile files")
    jpeg_quality: int = Field(95, ge=1, le=100)
    num_workers: int = Field(0, ge=0, description="processes; 0: one a core")
