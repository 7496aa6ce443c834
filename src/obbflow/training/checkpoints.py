"""Checkpoints of a run: written whole or not at all, verified when read."""

import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from obbflow.errors import CheckpointError, TrainingError
from obbflow.models.checkpoint_file import FORMAT, content_checksum, read_torch_file

logger = logging.getLogger(__name__)

LAST, BEST = "last.pt", "best.pt"

_EPOCH_FILE = re.compile(r"epoch_(\d{4,})\.pt")
_WRITE_ATTEMPTS = 3
_FIRST_WAIT = 0.2  # seconds; each further wait is four times as long
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class CheckpointManager:
    """The checkpoint files of one run directory.

    ``last.pt`` is the newest full state, ``epoch_0001.pt`` ... are the newest ``keep_last_n`` of
    them, and ``best.pt`` holds the weights of the best epoch and is never cleaned up. A file is
    replaced by a rename, so that a reader or a killed run never meets half a file.
    """

    def __init__(self, run_dir: Path, keep_last_n: int = 5) -> None:
        """Look after the checkpoints in ``run_dir``, which need not exist yet."""
        self.run_dir = run_dir
        self.keep_last_n = keep_last_n

    @property
    def latest(self) -> Path | None:
        """The newest full checkpoint, None when there is none."""
        path = self.run_dir / LAST
        return path if path.is_file() else None

    @property
    def best(self) -> Path | None:
        """The best checkpoint, None when there is none."""
        path = self.run_dir / BEST
        return path if path.is_file() else None

    def save(self, content: Mapping[str, Any]) -> Path:
        """Write the full state of an epoch as ``epoch_NNNN.pt`` and ``last.pt``.

        Args:
            content: Tensors, numbers, strings, lists, tuples and dictionaries; ``epoch`` is the
                number of the epoch that has ended, from 1.

        Returns:
            The path of ``last.pt``.

        Raises:
            TrainingError: If it cannot be written; the former files are untouched.
        """
        target = self._epoch_path(content["epoch"])
        write_checkpoint(content, target)
        last = self.run_dir / LAST
        _link(target, last)
        for old in self.epoch_files()[: -self.keep_last_n]:
            old.unlink()
        return last

    def save_best(self, content: Mapping[str, Any]) -> Path:
        """Write ``best.pt``, the weights of the best epoch so far, and return its path.

        Raises:
            TrainingError: If it cannot be written; the former best is untouched.
        """
        target = self.run_dir / BEST
        write_checkpoint(content, target)
        return target

    def load(self, path: Path | None = None) -> dict[str, Any]:
        """Return the content of ``path``, by default of the newest full checkpoint.

        Raises:
            CheckpointError: If there is none, or it is damaged.
        """
        chosen = path or self.latest
        if chosen is None:
            raise CheckpointError(
                f"{self.run_dir} holds no {LAST}: no epoch of this run was finished. Start it anew."
            )
        return read_checkpoint(chosen)

    def best_of(self, epoch: int) -> Path | None:
        """Return a file with the weights of the best epoch ``epoch``, None when it is gone."""
        if self.best is not None and (peek_checkpoint(self.best) or {}).get("epoch") == epoch:
            return self.best
        path = self._epoch_path(epoch)
        return path if path.is_file() else None

    def adopt_best(self, source: Path) -> None:
        """Let ``best.pt`` be ``source``, a file of this run or of one that this run continues."""
        target = self.run_dir / BEST
        if source != target:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            _link(source, target)

    def remove_scratch(self) -> None:
        """Remove what a killed run has half written."""
        for path in self.run_dir.glob(".*.pt.*"):
            path.unlink()

    def epoch_files(self) -> list[Path]:
        """Return the epoch checkpoints, oldest first."""
        if not self.run_dir.is_dir():
            return []
        found = [path for path in self.run_dir.iterdir() if _EPOCH_FILE.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(path.stem.removeprefix("epoch_")))

    def _epoch_path(self, epoch: int) -> Path:
        return self.run_dir / f"epoch_{epoch:04d}.pt"


def write_checkpoint(content: Mapping[str, Any], target: Path) -> None:
    """Write ``content`` with its checksum: to a temporary file, to the disk, then renamed.

    Args:
        content: Only what ``torch.load(weights_only=True)`` reads back.
        target: Its folder is made when it is missing.

    Raises:
        TrainingError: If the disk is full, with the bytes needed, or the third attempt fails. A
            former ``target`` is untouched.
        TypeError: If ``content`` holds anything that could not be read back.
    """
    payload = {"format": FORMAT, **content}
    payload["checksum"] = content_checksum(payload)
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    for attempt in range(1, _WRITE_ATTEMPTS + 1):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_through(payload, scratch)
            scratch.replace(target)
            _sync_folder(target.parent)
        except (OSError, RuntimeError) as error:  # torch wraps what its stream raises
            scratch.unlink(missing_ok=True)
            _refuse_or_wait(error, payload, target, attempt)
        else:
            return


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint of ours, on the CPU.

    Raises:
        CheckpointError: If the file is missing, damaged, or was not written by this project.
    """
    content = read_torch_file(path)
    if content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: holds weights but no training state of this project. Load it with "
            "checkpoint.load_from_checkpoint."
        )
    return content


def peek_checkpoint(path: Path) -> dict[str, Any] | None:
    """Return a checkpoint of ours with tensors that are read only when used, and not verified.

    Returns:
        None for any other file; whoever loads it says what is wrong with it.
    """
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # other people's files may be anything
        logger.debug("%s is no checkpoint of ours: %s", path, error)
        return None
    is_ours = isinstance(payload, dict) and payload.get("format") == FORMAT
    return payload if is_ours else None


def _size_bytes(content: object) -> int:
    """Return about how many bytes ``content`` takes in a file."""
    if isinstance(content, Tensor):
        return content.numel() * content.element_size()
    if isinstance(content, Mapping):
        return sum(_size_bytes(value) for value in content.values())
    if isinstance(content, list | tuple):
        return sum(_size_bytes(value) for value in content)
    return 8


def _write_through(payload: Mapping[str, Any], path: Path) -> None:
    with path.open("wb") as stream:
        torch.save(payload, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _refuse_or_wait(
    error: Exception, payload: Mapping[str, Any], target: Path, attempt: int
) -> None:
    """Wait before the next attempt; raise when there is none, or waiting cannot help."""
    if _is_disk_full(error):
        free = shutil.disk_usage(target.parent).free
        raise TrainingError(
            f"{target}: the disk is full. The checkpoint needs {_size_bytes(payload):,} bytes, "
            f"{free:,} are free; the former file is untouched. Free space, then go on with "
            "checkpoint.discover_previous_run=true."
        ) from error
    if not isinstance(error, OSError) and _os_error(error) is None:
        raise error  # a fault of ours, not of the disk
    if attempt == _WRITE_ATTEMPTS:
        raise TrainingError(
            f"{target}: cannot be written ({_first_line(error)}), {attempt} attempts failed; the "
            "former file is untouched. Check the folder, then go on with "
            "checkpoint.discover_previous_run=true."
        ) from error
    wait = _FIRST_WAIT * 4 ** (attempt - 1)
    logger.warning("%s: writing failed (%s), again in %.1f s", target, error, wait)
    time.sleep(wait)


def _is_disk_full(error: Exception) -> bool:
    cause = _os_error(error)
    return cause is not None and cause.errno in _DISK_FULL


def _os_error(error: BaseException | None) -> OSError | None:
    """Return the first OSError in the chain of an error."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def _link(source: Path, target: Path) -> None:
    """Let ``target`` name the same content as ``source``, atomically."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    try:
        scratch.hardlink_to(source)
    except OSError:  # another file system, or one without hard links
        shutil.copyfile(source, scratch)
    scratch.replace(target)
    _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
