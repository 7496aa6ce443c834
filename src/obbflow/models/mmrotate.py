"""Checkpoints of MMRotate 0.x and 1.x: their names for our tensors, and what else they tell.

A file is ``{"state_dict": ..., "meta": ...}``; the names of its tensors tell which detector it is.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_SIGN = "neck.lateral_convs.0.conv.weight"  # every one of its detectors with a pyramid has it

# The pyramid of two-stage detectors reads C2 .. C5, that of one-stage detectors C3 .. C5; the
# latter makes two levels more by convolutions.
_TWO_STAGE_NECK = {
    **{f"neck.lateral_convs.{i}.conv": f"fpn.pyramid.inner_blocks.{i}.0" for i in range(4)},
    **{f"neck.fpn_convs.{i}.conv": f"fpn.pyramid.layer_blocks.{i}.0" for i in range(4)},
}
_ONE_STAGE_NECK = {
    **{f"neck.lateral_convs.{i}.conv": f"fpn.pyramid.inner_blocks.{i}.0" for i in range(3)},
    **{f"neck.fpn_convs.{i}.conv": f"fpn.pyramid.layer_blocks.{i}.0" for i in range(3)},
    "neck.fpn_convs.3.conv": "fpn.pyramid.extra_blocks.p6",
    "neck.fpn_convs.4.conv": "fpn.pyramid.extra_blocks.p7",
}
_REGION_HEADS = {  # Oriented R-CNN, Rotated Faster R-CNN
    "rpn_head.rpn_conv": "rpn.conv",
    "rpn_head.rpn_cls": "rpn.objectness",
    "rpn_head.rpn_reg": "rpn.offsets",
    "roi_head.bbox_head.shared_fcs.0": "roi_head.fc1",
    "roi_head.bbox_head.shared_fcs.1": "roi_head.fc2",
    "roi_head.bbox_head.fc_cls": "roi_head.classifier",
    "roi_head.bbox_head.fc_reg": "roi_head.regressor",
}
_DENSE_HEADS = {  # Rotated RetinaNet, Rotated FCOS
    **{f"bbox_head.cls_convs.{i}.conv": f"head.cls_tower.{i}.conv" for i in range(4)},
    **{f"bbox_head.cls_convs.{i}.gn": f"head.cls_tower.{i}.norm" for i in range(4)},
    **{f"bbox_head.reg_convs.{i}.conv": f"head.box_tower.{i}.conv" for i in range(4)},
    **{f"bbox_head.reg_convs.{i}.gn": f"head.box_tower.{i}.norm" for i in range(4)},
    "bbox_head.retina_cls": "head.classifier",
    "bbox_head.retina_reg": "head.regressor",
    "bbox_head.conv_cls": "head.classifier",
    "bbox_head.conv_reg": "head.regressor",
    "bbox_head.conv_angle": "head.angle",
    "bbox_head.conv_centerness": "head.centerness",
    **{f"bbox_head.scales.{i}": f"head.scales.{i}" for i in range(5)},
    "bbox_head.scale_angle": "head.angle_scale",
}
_REGION_CLASSIFIER = "roi_head.bbox_head.fc_cls"
_CLASSIFIERS = (_REGION_CLASSIFIER, "bbox_head.retina_cls", "bbox_head.conv_cls")

_VERSIONS = ("mmrotate_version", "mmdet_version", "mmengine_version", "mmcv_version")


def is_published(names: Container[str]) -> bool:
    """Return whether tensors have the names that MMRotate gives to those of a detector."""
    return _SIGN in names


def own_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name that our detectors give to each of MMRotate's tensors.

    Names of parts that our detectors do not have, and those of the backbone, stay as they are.
    """
    names = list(names)
    is_two_stage = any(name.startswith("neck.lateral_convs.3.") for name in names)
    layers = (_TWO_STAGE_NECK if is_two_stage else _ONE_STAGE_NECK) | _REGION_HEADS | _DENSE_HEADS
    own = {}
    for name in names:
        layer, _, leaf = name.rpartition(".")
        own[name] = f"{layers[layer]}.{leaf}" if layer in layers else name
    return own


def own_classes(
    tensors: Mapping[str, Tensor], content: Mapping[str, Any], class_names: Sequence[str]
) -> dict[str, Tensor]:
    """Return published tensors with the classes as our model has them.

    Background, there the last class of a region head, becomes the first one. Classes are found by
    their names, so a model may have them in another order, or only some of them; of a model with
    a class that the file does not know the classifier is left out.

    Args:
        tensors: By MMRotate's names.
        content: All that the file holds: it may name its classes.
        class_names: Those of the model, by ascending label; empty: the same, in the same order.
    """
    known = _classes(content)
    count = len(known)
    rows = list(range(count))
    if known and class_names:
        if not set(class_names) <= set(known):
            return {key: value for key, value in tensors.items() if not _classifies(key)}
        rows = [known.index(name) for name in class_names]
    own = dict(tensors)
    for key in filter(_classifies, tensors):
        value = tensors[key]
        if key.startswith(_REGION_CLASSIFIER):
            classes, background = value[:-1], value[-1:]
            own[key] = torch.cat([background, classes[rows] if len(classes) == count else classes])
        elif count and len(value) % count == 0:  # of each anchor in turn, all classes
            own[key] = value.unflatten(0, (-1, count))[:, rows].flatten(0, 1)
    return own


def describe(
    names: Container[str],
    content: Mapping[str, Any],
    class_names: Sequence[str],
    anchor_angle: str | None = None,
) -> tuple[str, ...]:
    """Return what a user has to know of a published file, one line each.

    Args:
        names: Of its tensors.
        content: All that the file holds. Everything but the tensors may be absent.
        class_names: Those of the model, by ascending label; empty if they are not known.
        anchor_angle: ``model.retinanet_anchor_angle`` of the model, if it is known.
    """
    meta = _meta(content)
    versions = [f"{key.removesuffix('_version')} {meta[key]}" for key in _VERSIONS if key in meta]
    lines = [f"a checkpoint of MMRotate ({', '.join(versions) or 'it does not say which version'})"]
    classes = _classes(content)
    unknown = sorted(set(class_names) - set(classes))
    if not classes:
        lines.append("it does not name its classes: they are taken in its order")
    elif unknown:
        lines.append(
            f"it does not know {', '.join(unknown)}, only {', '.join(classes)}: its classifier is "
            "left out"
        )
    else:
        lines.append(f"its classes: {', '.join(classes)}")
    angles = re.search(r"angle_version\s*=\s*'(\w+)'", str(meta.get("config", meta.get("cfg"))))
    if angles and angles[1] != "le90":
        lines.append(f"trained with angle_version {angles[1]!r}: its boxes are no le90 boxes")
    if "bbox_head.retina_cls.weight" in names:
        lines.append(
            f"its anchors need model.retinanet_anchor_angle {_anchor_angle(meta)}; the model has "
            f"{anchor_angle or 'none'}"
        )
    return tuple(lines)


def _anchor_angle(meta: Mapping[str, Any]) -> str:
    """Return the anchors that a RetinaNet was trained with; its tensors do not tell them."""
    if str(meta.get("mmrotate_version", "")).startswith("0.") or "CLASSES" in meta:
        return "zero"
    if "mmengine_version" in meta or "dataset_meta" in meta:
        return "le90"
    return "zero if it is one of the published files, le90 if 1.x trained it"


def _classifies(name: str) -> bool:
    """Return whether a published tensor has a row for each class."""
    return name.rpartition(".")[0] in _CLASSIFIERS


def _meta(content: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = content.get("meta")
    return meta if isinstance(meta, Mapping) else {}


def _classes(content: Mapping[str, Any]) -> list[str]:
    """Return the classes that a file names, which 0.x and 1.x keep in two places."""
    meta = _meta(content)
    data_set = meta.get("dataset_meta") or {}  # of 1.x, whose first versions write CLASSES too
    found = meta.get("CLASSES") or data_set.get("classes") or data_set.get("CLASSES") or ()
    return [found] if isinstance(found, str) else [str(name) for name in found]
