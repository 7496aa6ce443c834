"""Loading weights: whole detectors from checkpoints, backbones from torchvision's files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn
from torchvision.models import get_model_weights

from obbflow.errors import CheckpointError
from obbflow.models import mmrotate
from obbflow.models.backbones import Backbone
from obbflow.models.checkpoint_file import read_torch_file

_SHOWN = 10  # names listed before a count
_WRAPPER = "module."  # before every name that DataParallel has saved
_NESTED_KEYS = ("model", "state_dict", "model_state_dict")
_COUNTER = ".num_batches_tracked"  # no layer of ours reads it; files from before 2019 lack it
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.(?=[12]\.)")  # norm.1, now norm1


@dataclass(frozen=True)
class LoadReport:
    """What a load did: names of the model's tensors, in the model's order."""

    path: Path
    loaded: tuple[str, ...]
    missing: tuple[str, ...]  # in the model, not in the file (or excluded)
    unexpected: tuple[str, ...]  # in the file, not in the model
    mismatched: tuple[str, ...]  # in both, with another shape
    notes: tuple[str, ...] = ()  # what to know of a file that another program wrote

    def __str__(self) -> str:
        lines = [f"{self.path}: {len(self.loaded)} tensors loaded"]
        lines += [f"  {note}" for note in self.notes]
        for name in ("missing", "unexpected", "mismatched"):
            names = getattr(self, name)
            if names:
                lines.append(f"  {len(names)} {name}: {_shorten(names)}")
        return "\n".join(lines)


def load_checkpoint(
    path: str | Path,
    model: nn.Module,
    strict: bool = False,
    include_prefixes: Sequence[str] = (),
    exclude_prefixes: Sequence[str] = (),
    *,
    class_names: Sequence[str] = (),
) -> LoadReport:
    """Load weights into ``model``, in place, and return what fitted.

    Takes our own checkpoints, ``{"state_dict": ...}``, ``{"model_state_dict": ...}``, bare state
    dicts and those of MMRotate 0.x and 1.x, whose names are translated; a leading ``module.`` is
    ignored, in prefixes too. Only tensors and plain values are read from the file, never code.

    Args:
        path: The file.
        model: Takes the tensors, on its own device and in its own types.
        strict: Raise unless every tensor of both sides fits.
        include_prefixes: If any, only names that start with one of them are loaded. A name may be
            ours or MMRotate's.
        exclude_prefixes: Names that start with one of them are not loaded.
        class_names: Of the model, by ascending label. A file of MMRotate names its classes too: its
            classifier is then put in this order, or left out if it lacks one of them.

    Raises:
        CheckpointError: If the file is missing, damaged or needs code to load; if nothing in it
            fits; or with ``strict`` if anything does not.
    """
    path = Path(path)
    content = read_torch_file(path)
    found = _tensors(path, content)
    notes: tuple[str, ...] = ()
    names = {name: name for name in found}
    if mmrotate.is_published(found):
        head = getattr(model, "head", None)
        anchor_angle = getattr(getattr(head, "config", None), "retinanet_anchor_angle", None)
        notes = mmrotate.describe(found, content, class_names, anchor_angle)
        names = mmrotate.own_names(found)
        found = mmrotate.own_classes(found, content, class_names)
    included = tuple(prefix.removeprefix(_WRAPPER) for prefix in include_prefixes)
    excluded = tuple(prefix.removeprefix(_WRAPPER) for prefix in exclude_prefixes)
    wanted = {
        names[name]: value
        for name, value in found.items()
        if (not included or any(each.startswith(included) for each in (name, names[name])))
        and not (excluded and any(each.startswith(excluded) for each in (name, names[name])))
    }
    own = model.state_dict()
    fitting = {
        name: value
        for name, value in wanted.items()
        if name in own and own[name].shape == value.shape
    }
    mismatched = [name for name in wanted if name in own and name not in fitting]
    report = LoadReport(
        path=path,
        loaded=tuple(name for name in own if name in fitting),
        missing=tuple(name for name in own if name not in wanted),
        unexpected=tuple(name for name in wanted if name not in own),
        mismatched=tuple(
            f"{name} {tuple(wanted[name].shape)}, here {tuple(own[name].shape)}"
            for name in mismatched
        ),
        notes=notes,
    )
    if not fitting:
        raise CheckpointError(f"{report}\nNothing in this file fits the model.")
    if strict and (report.missing or report.unexpected or report.mismatched):
        raise CheckpointError(f"{report}\nThe file and the model must agree in every tensor.")
    model.load_state_dict({**own, **fitting})
    return report


def load_backbone_weights(backbone: Backbone, name: str, file: str | None) -> None:
    """Load torchvision's ImageNet weights of ``name`` into ``backbone``, in place.

    They are read from ``file``, or from torchvision's cache. Nothing is ever downloaded.

    Raises:
        CheckpointError: If the file is not there, or does not fit.
    """
    weights = get_model_weights(name).DEFAULT
    cached = Path(
        torch.hub.get_dir(), "checkpoints", PurePosixPath(urlsplit(weights.url).path).name
    )
    path = Path(file) if file else cached
    if not path.is_file():
        raise CheckpointError(
            f"{path}: the pretrained weights of {name} are not on this machine. Download "
            f"{weights.url} to that path, or name another file in model.backbone_weights, or set "
            "model.pretrained_backbone=false to start from random weights."
        )
    report = load_checkpoint(path, backbone)
    missing = [each for each in report.missing if not each.endswith(_COUNTER)]
    # The blocks of a shallower network are a part of a deeper one's: what is left over tells.
    left_over = set(report.unexpected) - set(backbone.left_out)
    if missing or report.mismatched or left_over:
        raise CheckpointError(
            f"{report}\nThese are not the weights of {name} at this width; correct "
            "model.backbone, model.backbone_width or model.backbone_weights."
        )


def _tensors(path: Path, content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint, wherever it keeps them, under their present names."""
    nested = [content[key] for key in _NESTED_KEYS if isinstance(content.get(key), Mapping)]
    state = nested[0] if nested else content
    tensors = {
        _OLD_DENSENET.sub(r"\1", str(name).removeprefix(_WRAPPER)): value
        for name, value in state.items()
        if isinstance(value, Tensor)
    }
    if not tensors:
        raise CheckpointError(f"{path}: holds no tensors under {', '.join(_NESTED_KEYS)}.")
    return tensors


def _shorten(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
