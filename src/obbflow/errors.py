"""Errors a user can cause, and how they are worded."""

from collections.abc import Iterable
from difflib import get_close_matches


class ObbflowError(Exception):
    """A user's mistake: the command line prints the message alone and exits non-zero.

    The message says where, what is wrong with the value as given, what would be right, and
    what to do.
    """


class ConfigError(ObbflowError):
    """A parameter is unknown, out of range, or contradicts another one."""


class DataError(ObbflowError):
    """Images, labels or tables cannot be used as they are."""


class CheckpointError(ObbflowError):
    """A checkpoint cannot be read, or does not fit the model or the data."""


class TrainingError(ObbflowError):
    """Training cannot go on, for a reason that the user can remove."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Return ``", did you mean 'x'?"`` for the closest valid name, or ``""`` if none is close.

    Example:
        >>> did_you_mean("num_epoch", ["num_epochs", "momentum"])
        ", did you mean 'num_epochs'?"
    """
    close = get_close_matches(name, list(valid), n=1, cutoff=0.6)
    return f", did you mean {close[0]!r}?" if close else ""
