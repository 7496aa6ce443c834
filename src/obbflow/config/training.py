"""Section ``training``."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from obbflow.config.section import Section


class TrainingSection(Section):
    """Optimizer, schedule and loop."""

    num_epochs: int = Field(20, ge=1)
    accelerator: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="auto: the first CUDA device that can run now, else the CPU"
    )
    use_amp: bool = Field(True, description="mixed precision on CUDA; the CPU computes in float32")
    amp_dtype: Literal["auto", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where the device has it natively, else fp16"
    )
    optimizer: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = Field(0.001, gt=0, description="base rate, before scaling")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd; beta 1 of adamw")
    weight_decay: float = Field(1e-4, ge=0)
    no_decay_norm_and_bias: bool = False
    gradient_accumulation_steps: int = Field(2, ge=1, description="batches an optimizer step")
    max_grad_norm: float | None = Field(1.0, gt=0, description="null: measured, not clipped")
    max_nonfinite_steps: int = Field(
        20, ge=1, description="non-finite losses in a row after which training stops"
    )
    loss_weights: dict[str, Annotated[float, Field(ge=0)]] | None = Field(
        None, description="loss name -> factor"
    )
    lr_scheduler_type: Literal["step", "multistep", "cosine_annealing", "one_cycle"] | None = Field(
        None, description="null: multistep when milestones are given, else step"
    )
    lr_scheduler_step_epochs: int = Field(8, ge=1)
    lr_scheduler_milestones: tuple[int, ...] | None = Field(
        None, description="epochs after which the rate drops"
    )
    lr_scheduler_gamma: float = Field(0.1, gt=0, le=1)
    lr_scheduler_cosine_eta_min: float = Field(1e-6, ge=0)
    lr_scheduler_one_cycle_pct_start: float = Field(0.3, gt=0, lt=1)
    lr_scheduler_one_cycle_div_factor: float = Field(25.0, gt=1)
    lr_scheduler_one_cycle_final_div_factor: float = Field(1e4, gt=1)
    lr_warmup_steps: int = Field(500, ge=0, description="optimizer steps; not with one_cycle")
    lr_scaling_with_accumulation: Literal["linear", "sqrt", "none"] = Field(
        "linear", description="factor on the rate for gradient_accumulation_steps"
    )
    use_lr_param_groups: bool = Field(False, description="apply the lr_mult_* factors")
    lr_mult_backbone: float = Field(0.5, gt=0)
    lr_mult_rpn: float = Field(0.5, gt=0)
    lr_mult_roi: float = Field(2.0, gt=0)
    lr_mult_other: float = Field(1.0, gt=0)
    channels_last: bool = Field(True, description="memory layout of the model and its images")
    progress_bar: Literal["auto", "rich", "plain", "none"] = Field(
        "auto", description="auto: rich on a terminal, plain lines elsewhere"
    )

    @model_validator(mode="after")
    def _milestones_belong_to_multistep(self) -> Self:
        if self.lr_scheduler_type == "multistep" and not self.lr_scheduler_milestones:
            raise ValueError(
                "lr_scheduler_milestones: multistep needs at least one epoch, e.g. [8, 11]"
            )
        return self

    @property
    def schedule(self) -> Literal["step", "multistep", "cosine_annealing", "one_cycle"]:
        """The schedule in use: multistep when milestones are given, else step."""
        return self.lr_scheduler_type or ("multistep" if self.lr_scheduler_milestones else "step")
