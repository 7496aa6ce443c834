"""Section ``preprocessing``."""

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from obbflow.config.section import Section

Mean = Annotated[float, Field(ge=0, le=1)]
Deviation = Annotated[float, Field(gt=0, le=1)]


class PreprocessingSection(Section):
    """Resizing, normalisation and geometric augmentation of tiles."""

    resize_mode: Literal["fixed", "pad", "keep_ratio", "crop"] = Field(
        "pad",
        description="fixed: stretch to target; pad: scale by the larger edge and pad to target; "
        "keep_ratio: scale by the larger edge, pad to the divisor; crop: native resolution",
    )
    target_size: tuple[PositiveInt, PositiveInt] = Field(
        (1024, 1024), description="(height, width), px"
    )
    normalize_mean: tuple[Mean, Mean, Mean] = Field(
        (123.675 / 255, 116.28 / 255, 103.53 / 255), description="RGB, on a 0-1 scale"
    )
    normalize_std: tuple[Deviation, Deviation, Deviation] = Field(
        (58.395 / 255, 57.12 / 255, 57.375 / 255), description="RGB, on a 0-1 scale"
    )
    pad_size_divisor: int = Field(32, ge=1)
    enable_flip_horizontal: bool = True
    enable_flip_vertical: bool = True
    enable_flip_diagonal: bool = False
    enable_random_rotate: bool = False
    random_rotate_prob: float = Field(0.5, ge=0, le=1)
    random_rotate_angle_range: float = Field(180.0, ge=0, le=180, description="degrees, both ways")
    random_rotate_rect_labels: tuple[str, ...] | None = Field(
        None, description="tiles holding one of these classes rotate by multiples of 90 degrees"
    )
