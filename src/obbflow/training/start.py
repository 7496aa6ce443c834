"""Where a training starts: anew, from weights, or after the last epoch of an earlier run."""

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from obbflow.config import CheckpointSection, TrainingSection
from obbflow.errors import CheckpointError, ConfigError, TrainingError, did_you_mean
from obbflow.training.checkpoints import CheckpointManager, peek_checkpoint
from obbflow.training.status import FINISHED, changed_settings, read_status

logger = logging.getLogger(__name__)

_FIXED_LENGTH = ("cosine_annealing", "one_cycle")  # schedules that are stretched over the epochs
_SHOWN = 5


@dataclass(frozen=True)
class Start:
    """Where a training starts.

    Attributes:
        run_dir: Folder in which it goes on.
        resume: Checkpoint of ours after whose epoch it continues.
        weights: File whose weights it starts from, at epoch 1.
        resumed_from: Run or file that it continues.
        best: Best checkpoint so far of a run that is continued in another folder.
        is_complete: Nothing is left to train; ``run_dir`` holds the results.
    """

    run_dir: Path
    resume: Path | None = None
    weights: Path | None = None
    resumed_from: str | None = None
    best: Path | None = None
    is_complete: bool = False


@dataclass(frozen=True)
class Request:
    """What a training is to be: earlier runs and files are compared with it.

    Attributes:
        runs: Folder of all run directories.
        run_id: Of the present run.
        checkpoint: What the user asks for.
        training: ``num_epochs`` says whether an earlier run is complete.
        sections: Every key of every section, as plain data.
        data_hash: Of the tiles and labels.
        fingerprint: Hash of configuration and data, by which earlier runs are recognised.
    """

    runs: Path
    run_id: str
    checkpoint: CheckpointSection
    training: TrainingSection
    sections: Mapping[str, Mapping[str, Any]]
    data_hash: str
    fingerprint: str


def choose_start(request: Request) -> Start:
    """Return where to start: by discovery, ``load_from_checkpoint`` or ``load_from_experiment``.

    Discovery comes first, as the fingerprint holds the other two: a training that was started from
    weights and killed is continued, not started from them again.

    Raises:
        CheckpointError: If a file asked for is missing.
        ConfigError: If there is no such experiment, or nothing is left to train.
        TrainingError: If the folder of a new run holds another run.
    """
    runs, checkpoint = request.runs, request.checkpoint
    if checkpoint.discover_previous_run:
        found = _discover(runs, request.fingerprint)
        if found is not None:
            return found
        logger.info("No earlier run of this configuration and data in %s: starting anew", runs)
    if checkpoint.load_from_experiment is not None:
        return _from_experiment(request)
    fresh = _fresh(runs, request.run_id)
    if checkpoint.load_from_checkpoint is not None:
        return _from_file(checkpoint.load_from_checkpoint, checkpoint, request.training, fresh)
    return fresh


def check_fit(path: Path, class_map: Mapping[str, int], checkpoint: CheckpointSection) -> None:
    """Compare the classes of a checkpoint of ours with those of the data.

    Raises:
        CheckpointError: Showing both, unless prefixes say what not to load.
    """
    content = peek_checkpoint(path)
    stored = (content or {}).get("class_map")
    if stored is None or stored == dict(class_map) or checkpoint.is_partial:
        return
    advice = "Set checkpoint.load_exclude_prefixes to drop the classifier."
    if len(stored) != len(class_map):
        raise CheckpointError(
            f"{path}: holds {len(stored)} classes, the class map {len(class_map)}. {advice} "
            f"Checkpoint: {', '.join(stored)}. Class map: {', '.join(class_map)}."
        )
    raise CheckpointError(
        f"{path}: its classes are {_ordered(stored)}, those of the data {_ordered(class_map)}. "
        f"Train on the same classes, or rename them with dataset.map_labels. {advice}"
    )


def compare_settings(path: Path, sections: Mapping[str, Mapping[str, Any]], data_hash: str) -> None:
    """Log which settings differ from those of a checkpoint that is continued, and whether the data.

    Raises:
        ConfigError: If the number of epochs changed under a schedule that is stretched over them.
    """
    content = peek_checkpoint(path) or {}
    stored = content.get("config") or {}
    changed = changed_settings(stored, sections)
    training = TrainingSection.model_validate(sections["training"])
    former = stored.get("training", {}).get("num_epochs", training.num_epochs)
    if former != training.num_epochs and training.schedule in _FIXED_LENGTH:
        raise ConfigError(
            f"training.num_epochs: {path} was trained with {training.schedule} over {former} "
            f"epochs, got {training.num_epochs}; the rate would jump. Set it to {former}, or start "
            "from the weights with checkpoint.resume_from_checkpoint_epoch=false."
        )
    if changed:
        logger.info("Continuing %s with other settings: %s", path, "; ".join(changed))
    if content.get("data_hash", data_hash) != data_hash:
        logger.warning(
            "%s was trained on other tiles or labels than the present ones: what it has reached so "
            "far does not tell how well these are learnt",
            path,
        )


def _fresh(runs: Path, run_id: str) -> Start:
    """Return a start in a folder of its own."""
    name = run_id
    if run_id == "interactive":  # notebooks have no run id: each training gets its own
        name = f"interactive-{datetime.now(UTC):%Y-%m-%dT%H.%M.%S.%f}"
    run_dir = runs / name
    if read_status(run_dir) is not None:
        raise TrainingError(
            f"{run_dir}: the folder holds another run. Give this run another id, or continue that "
            f"one with checkpoint.load_from_experiment={name}."
        )
    return Start(run_dir)


def _from_file(
    path: Path, checkpoint: CheckpointSection, training: TrainingSection, fresh: Start
) -> Start:
    """Return a start from a file: resumed if it is ours, else from its weights."""
    if not path.is_file():
        raise CheckpointError(
            f"checkpoint.load_from_checkpoint: there is no file {path}. Correct the path."
        )
    content = peek_checkpoint(path)
    if content is None or not checkpoint.resumes:
        return Start(fresh.run_dir, weights=path)
    if content["epoch"] >= training.num_epochs:
        raise ConfigError(
            f"checkpoint.load_from_checkpoint: {path} already has {content['epoch']} of "
            f"training.num_epochs = {training.num_epochs} epochs, nothing is left to train. Raise "
            "training.num_epochs, or start from its weights with "
            "checkpoint.resume_from_checkpoint_epoch=false."
        )
    return _continue(fresh, path, content, resumed_from=str(path))


def _from_experiment(request: Request) -> Start:
    """Return a start from an earlier run, in a folder of its own."""
    runs, checkpoint = request.runs, request.checkpoint
    name = str(checkpoint.load_from_experiment)
    former = CheckpointManager(runs / name)
    known = sorted((path.name for path in runs.iterdir()), reverse=True) if runs.is_dir() else []
    if name not in known:
        raise ConfigError(
            f"checkpoint.load_from_experiment: there is no run {name!r} in {runs}"
            f"{did_you_mean(name, known)}. The newest are: {', '.join(known[:_SHOWN]) or 'none'}."
        )
    chosen = former.latest if checkpoint.resumes else former.best or former.latest
    if chosen is None:
        raise CheckpointError(
            f"checkpoint.load_from_experiment: the run {name} has no checkpoint, no epoch of it "
            "was finished. Start without it."
        )
    fresh = _fresh(runs, request.run_id)
    if not checkpoint.resumes:
        return Start(fresh.run_dir, weights=chosen, resumed_from=name)
    content = peek_checkpoint(chosen) or {}
    if content.get("epoch", 0) < request.training.num_epochs:
        return _continue(fresh, chosen, content, resumed_from=name)
    _check_same(name, content, request)
    logger.info("Run %s already has %d epochs: nothing to train", name, content["epoch"])
    return Start(former.run_dir, resumed_from=name, is_complete=True)


def _check_same(name: str, content: Mapping[str, Any], request: Request) -> None:
    """Raise `ConfigError` if the results of a complete run are not those asked for."""
    changed = changed_settings(content.get("config") or {}, request.sections)
    if content.get("data_hash", request.data_hash) != request.data_hash:
        changed.insert(0, "other tiles, labels or classes")
    if changed:
        raise ConfigError(
            f"checkpoint.load_from_experiment: the run {name} already has {content['epoch']} of "
            f"training.num_epochs = {request.training.num_epochs} epochs, nothing is left to "
            f"train, and its results are of another training: {'; '.join(changed)}. Raise "
            "training.num_epochs, or start from its weights with "
            "checkpoint.resume_from_checkpoint_epoch=false."
        )


def _continue(fresh: Start, path: Path, content: Mapping[str, Any], *, resumed_from: str) -> Start:
    """Return a start after the epoch of a checkpoint, in a folder of its own."""
    mark = content.get("best")
    best = CheckpointManager(path.parent).best_of(mark["epoch"]) if mark else None
    return Start(fresh.run_dir, resume=path, resumed_from=resumed_from, best=best)


def _discover(runs: Path, fingerprint: str) -> Start | None:
    """Return a start in the newest unfinished run with this fingerprint.

    Without one, in the newest finished run; None if there is none either.
    """
    same = [
        (str(status["started"]), run_dir, status)
        for run_dir, status in _statuses(runs)
        if status.get("configuration_hash") == fingerprint
    ]
    if not same:
        return None
    unfinished = [entry for entry in same if entry[2]["state"] != FINISHED]
    _, run_dir, status = max(unfinished or same, key=lambda entry: entry[0])
    if not unfinished:
        logger.info(
            "The newest run of this configuration, %s, is finished: its results are used, nothing "
            "is trained. For another training, leave out checkpoint.discover_previous_run.",
            run_dir.name,
        )
        return Start(run_dir, resumed_from=run_dir.name, is_complete=True)
    latest = CheckpointManager(run_dir).latest
    logger.info("Continuing run %s after epoch %d", run_dir.name, status.get("epoch", 0))
    return Start(run_dir, resume=latest, resumed_from=run_dir.name)


def _statuses(runs: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield run directories with their status; a folder without a readable one is no run."""
    for run_dir in sorted(runs.iterdir()) if runs.is_dir() else ():
        try:
            status = read_status(run_dir)
        except json.JSONDecodeError as error:
            logger.warning("%s: status.json cannot be read (%s): not a run", run_dir, error)
            status = None
        if status is not None:
            yield run_dir, status


def _ordered(class_map: Mapping[str, int]) -> str:
    return ", ".join(sorted(class_map, key=class_map.__getitem__))
