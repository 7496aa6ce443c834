"""Section ``loss``."""

from typing import Annotated, Literal

from pydantic import Field

from obbflow.config.section import Section

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LossSection(Section):
    """Classification loss and class weights."""

    loss_type: Literal["cross_entropy", "class_weighted", "focal", "focal_weighted", "none"] = (
        Field("class_weighted", description="none: use model.roi_loss_type")
    )
    class_weight_method: Literal["sqrt", "inv_freq", "effective_num", "log_inv_freq"] = "sqrt"
    class_weight_beta: float = Field(0.9999, gt=0, lt=1, description="only for effective_num")
    class_weight_overrides: dict[str, Weight] | None = Field(
        None, description="final weight of single classes, by name"
    )
    background_weight: float | None = Field(None, gt=0, description="null: 1.0")
    focal_alpha: float = Field(1.0, gt=0)
    focal_gamma: float = Field(2.0, ge=0)
    label_smoothing: float = Field(0.0, ge=0, lt=1)
