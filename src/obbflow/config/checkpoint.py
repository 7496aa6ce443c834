"""Section ``checkpoint``."""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from obbflow.config.section import Section


class CheckpointSection(Section):
    """Where training starts from, and which epoch is best."""

    load_from_checkpoint: Path | None = Field(
        None, description="weights file to start from (epoch 1), or a full checkpoint to resume"
    )
    load_from_experiment: str | None = Field(
        None,
        description="run id to continue in a folder of its own, or whose weights to start from",
    )
    discover_previous_run: bool = Field(
        False,
        description="continue the newest unfinished run of the same configuration (load_* keys "
        "included) in its folder; without one, start as the load_* keys say",
    )
    resume_from_checkpoint_epoch: bool = Field(
        True,
        description="load_*: continue after the checkpoint's epoch; false: start at epoch 1 from "
        "its weights, of an experiment the best ones",
    )
    load_include_prefixes: tuple[str, ...] | None = Field(
        None, description="load only tensors whose names start so, and start at epoch 1"
    )
    load_exclude_prefixes: tuple[str, ...] | None = Field(
        None, description="do not load tensors whose names start so, and start at epoch 1"
    )
    best_metric: str | None = Field(
        None, description="null: mAP when it is computed during training, else the training loss"
    )
    higher_is_better: bool | None = Field(None, description="null: inferred from the metric")
    keep_last_n: int = Field(5, ge=1, description="epoch checkpoints that are kept")

    @property
    def is_partial(self) -> bool:
        """Whether only some of the weights are loaded, so that nothing can be resumed."""
        return bool(self.load_include_prefixes or self.load_exclude_prefixes)

    @property
    def resumes(self) -> bool:
        """Whether a full checkpoint named by ``load_*`` is continued after its epoch."""
        return self.resume_from_checkpoint_epoch and not self.is_partial

    @model_validator(mode="after")
    def _every_key_counts(self) -> Self:
        if self.load_from_checkpoint is not None and self.load_from_experiment is not None:
            raise ValueError(
                "load_from_checkpoint: a training starts from one place, but load_from_experiment "
                f"is set too ({self.load_from_checkpoint} and {self.load_from_experiment}); "
                "set one of them to null"
            )
        if self.load_from_checkpoint is not None or self.load_from_experiment is not None:
            return self
        for name in ("load_include_prefixes", "load_exclude_prefixes"):
            if getattr(self, name):
                raise ValueError(
                    f"{name}: there is nothing to load from; set load_from_checkpoint or "
                    "load_from_experiment, or leave it out"
                )
        if self.discover_previous_run and not self.resume_from_checkpoint_epoch:
            raise ValueError(
                "resume_from_checkpoint_epoch: discover_previous_run continues a run after its "
                "last epoch, and false asks to start at epoch 1; set one of them only"
            )
        return self
