"""Section ``experiment``."""

from typing import Literal

from pydantic import Field

from obbflow.config.section import Section


class ExperimentSection(Section):
    """What is trained, and from which seed."""

    model_type: Literal[
        "oriented_rcnn", "rotated_faster_rcnn", "rotated_retinanet", "rotated_fcos"
    ] = Field("oriented_rcnn", description="the detector")
    seed: int = Field(
        0, ge=0, lt=2**31, description="seeds python, numpy, torch, workers and samplers"
    )
    deterministic: bool = Field(False, description="use deterministic kernels where they exist")
