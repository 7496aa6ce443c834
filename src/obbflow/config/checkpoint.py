"""Section ``checkpoint``."""

from pathlib import Path

from pydantic import Field

from obbflow.config.section import Section


class CheckpointSection(Section):
    """Where training starts from, and which epoch is best."""

    load_from_checkpoint: Path | None = Field(
        None, description="weights file to start from (epoch 1), or a full checkpoint to resume"
    )
    load_from_experiment: str | None = Field(None, description="run id to continue")
    discover_previous_run: bool = Field(
        False, description="continue the newest unfinished run of the same configuration"
    )
    resume_from_checkpoint_epoch: bool = Field(
        True, description="continue after the checkpoint's epoch; false: start at epoch 1"
    )
    load_include_prefixes: tuple[str, ...] | None = Field(None, description="load only these")
    load_exclude_prefixes: tuple[str, ...] | None = Field(None, description="do not load these")
    best_metric: str | None = Field(
        None, description="null: mAP when computed, else validation loss, else training loss"
    )
    higher_is_better: bool | None = Field(None, description="null: inferred from the metric")
    keep_last_n: int = Field(5, ge=1, description="epoch checkpoints that are kept")
