"""A checkpoint file as such: reading it without running code from it, and its checksum."""

import hashlib
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from obbflow.errors import CheckpointError

FORMAT = "obbflow.checkpoint"
"""Entry ``format`` of the files that this project writes; they have an entry ``checksum`` too."""

_PLAIN = (str, int, float, bool, type(None))


class _Dropped:
    """Takes the place of an object that nothing here needs, whatever the file says it holds."""

    def __init__(self, *_arguments: object) -> None:
        pass

    def __setstate__(self, _state: object) -> None:
        pass


# What files of MMRotate hold beside their weights: numpy's scores (under the names of its versions
# 1 and 2) and MMEngine's loss curves, with the methods that those refer to. They are dropped.
_DROPPED: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_Dropped, name)
    for name in (
        "numpy.dtype",
        "numpy.ndarray",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.core.multiarray._reconstruct",
        "numpy._core.multiarray._reconstruct",
        "mmengine.logging.history_buffer.HistoryBuffer",
        "builtins.getattr",
    )
]


def read_torch_file(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint file, on the CPU; one of ours is verified.

    Args:
        path: A file of ``torch.save``, ours or anybody's. Only tensors and plain values are read
            from it, never code.

    Returns:
        What the file holds, without the checksum.

    Raises:
        CheckpointError: If there is no such file, it is damaged, or it needs code to load.
    """
    if not path.is_file():
        raise CheckpointError(f"{path}: no such checkpoint file; correct the path.")
    try:
        with safe_globals(_DROPPED):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(_explain_refusal(path, str(error))) from error
    except Exception as error:  # damaged bytes make torch's reader fail in any way
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{path}: the file is damaged or no checkpoint ({reason}). Was it copied completely?"
        ) from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, not a checkpoint.")
    content = dict(content)
    if content.get("format") == FORMAT:
        stored = content.pop("checksum", None)
        if stored != content_checksum(content):
            raise CheckpointError(
                f"{path}: the file is damaged, its content does not match its checksum. Use "
                "another epoch_NNNN.pt of the run, or its best.pt."
            )
    return content


def _explain_refusal(path: Path, reason: str) -> str:
    """Return why torch refused to read a file, and how to make one that it reads."""
    # A name with a module is an object's class; "got <class 'int'>" comes of damaged bytes.
    foreign = re.search(r"(?:GLOBAL |got <class ')(\w+(?:\.\w+)+)", reason)
    if foreign is None:
        brief = reason.partition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
        return f"{path}: the file is damaged, or no checkpoint ({brief}). Copy it again."
    return (
        f"{path}: the file holds more than tensors and plain values, {foreign[1]}, so reading it "
        "could run code. If you trust whoever made it, write its weights to a plain file, where "
        "the packages that it needs are installed (MMRotate 1.x: mmengine), and name that one: "
        f"python -c \"import torch; torch.save(torch.load('{path}', map_location='cpu', "
        "weights_only=False)['state_dict'], 'plain.pth')\""
    )


def content_checksum(content: object) -> str:
    """Return the SHA-256 of nested plain data and tensors: keys, types, shapes and bytes."""
    digest = hashlib.sha256()
    for chunk in _chunks(content):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(content: object) -> Iterator[bytes | Any]:
    """Yield the bytes that stand for ``content``."""
    if isinstance(content, Tensor):
        yield f"tensor {content.dtype} {tuple(content.shape)};".encode()
        flat = content.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy()  # hashed in place, not copied
    elif isinstance(content, Mapping):
        yield f"mapping {len(content)};".encode()
        for key, value in content.items():
            yield f"{key!r}:".encode()
            yield from _chunks(value)
    elif isinstance(content, list | tuple):
        yield f"sequence {len(content)};".encode()
        for value in content:
            yield from _chunks(value)
    elif type(content) in _PLAIN:  # a subclass, such as torch's version, could not be read back
        yield f"{content!r};".encode()
    else:
        raise TypeError(
            f"a checkpoint holds tensors and plain values, got a {type(content).__name__}: "
            f"{content!r}"
        )
