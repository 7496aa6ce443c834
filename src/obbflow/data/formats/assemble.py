"""From scenes to the tables ``images`` and ``annotations``: probing, reading labels, splitting."""

import logging
import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from obbflow.config import DatasetSection
from obbflow.data.class_rules import name_objects
from obbflow.data.formats.detect import describe_other_format
from obbflow.data.formats.label_issues import (
    describe_broken_label,
    describe_missing_label,
    describe_other_size,
)
from obbflow.data.formats.leaks import find_leaks
from obbflow.data.formats.source import (
    SPLITS,
    DataTables,
    Issue,
    LabelFileError,
    LabelLine,
    Scene,
    make_issue,
    relative,
    shorten,
)
from obbflow.data.images import ImageFacts, probe_images
from obbflow.data.progress import track
from obbflow.data.split import choose_val_scenes
from obbflow.errors import DataError
from obbflow.tables import ANNOTATIONS, CORNERS, DATA_ISSUES, IMAGES, make_table

logger = logging.getLogger(__name__)


def assemble(
    scenes: Sequence[Scene],
    issues: Sequence[Issue],
    root: Path | None,
    dataset: DatasetSection,
    seed: int,
) -> DataTables:
    """Return the tables of scenes whose images are whole.

    Images are probed, not decoded. Bad lines, broken images and images without labels have a row
    in ``issues``, and so have images whose labels cannot be read: these are left out, as nobody
    knows what they show. Scenes without a split are split here: by group, never within one.

    Args:
        scenes: What the readers found; at least one.
        issues: What the readers noticed.
        root: Files below it are named relative to it; None: all are absolute.
        dataset: ``val_fraction`` of scenes, by group, are used for validation where no scene has a
            split of its own, and the rules that name classes say which of them these must show.
            With ``train_includes_val`` images in both splits are meant to be there, and no issue.
            An image that lacks one of ``bands`` is broken.
        seed: Of the choice of validation scenes.

    Returns:
        The tables, rows sorted by image_id; ``ignore`` and ``lookalike`` are False.

    Raises:
        DataError: If two scenes share an image_id, no image is whole or none is for training, no
            label file can be used, or coordinates are fractions instead of px.
    """
    scenes = sorted(scenes, key=lambda scene: scene.image_id)
    _require_unique(scenes)
    found = list(issues)
    facts = _probe(scenes, root, dataset.bands, found)
    scenes = [scene for scene in scenes if scene.image in facts]
    objects = _Objects()
    gsds = _read_labels(scenes, facts, root, objects, found)
    scenes = [scene for scene in scenes if scene.image_id in gsds]
    _require_readable(scenes, found, root, dataset)
    annotations = objects.to_table(scenes)
    splits = _choose_splits(scenes, annotations, dataset, seed)
    images = _make_images(scenes, facts, gsds, splits)
    _warn_about_missing_split(images, root, found)
    if not dataset.train_includes_val:
        found += find_leaks(images, root)
    return DataTables(images, annotations, make_table(found, DATA_ISSUES))


class _Objects:
    """Objects of all scenes as columns: a tenth of the memory of one Python object each."""

    def __init__(self) -> None:
        self._counts: list[int] = []
        self._lines, self._classes, self._corners = array("q"), array("q"), array("d")
        self._difficult = bytearray()
        self._class_ids: dict[str, int] = {}

    def add(self, objects: Sequence[LabelLine]) -> None:
        """Append the objects of the next scene."""
        self._counts.append(len(objects))
        if not objects:
            return
        lines, corners, names, difficult = zip(*objects, strict=True)
        for name in names:
            self._class_ids.setdefault(name, len(self._class_ids))
        self._lines.extend(lines)
        self._corners.extend(chain.from_iterable(corners))
        self._classes.extend(map(self._class_ids.__getitem__, names))
        self._difficult.extend(difficult)

    def to_table(self, scenes: Sequence[Scene]) -> pd.DataFrame:
        """Return table ``annotations``; ``scenes`` are those that objects were added of."""
        rows = np.repeat(np.arange(len(self._counts)), self._counts)
        corners = np.frombuffer(self._corners, dtype=np.float64).reshape(-1, len(CORNERS))
        columns = {
            "image_id": _strings([scene.image_id for scene in scenes], rows),
            "object_id": np.arange(len(rows)),
            "class_name": _strings(list(self._class_ids), np.frombuffer(self._classes, np.int64)),
            **dict(zip(CORNERS, corners.T, strict=True)),
            "difficult": np.frombuffer(self._difficult, dtype=bool),
            "ignore": np.zeros(len(rows), dtype=bool),
            "lookalike": np.zeros(len(rows), dtype=bool),
            "source_file": _strings([scene.source for scene in scenes], rows),
            "source_line": np.frombuffer(self._lines, dtype=np.int64),
        }
        return make_table(pd.DataFrame(columns), ANNOTATIONS)


def _strings(values: list[str], rows: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """Return ``values[row]`` of each row as one column."""
    return pd.array(values, dtype="string").take(rows)


def _require_unique(scenes: Sequence[Scene]) -> None:
    """Raise if two of the scenes, sorted by image_id, share one."""
    clashes = [
        f"{first.image} and {second.image}"
        for first, second in pairwise(scenes)
        if first.image_id == second.image_id
    ]
    if clashes:
        raise DataError(
            f"{shorten(clashes)}: two images with the same name; images, labels and tiles belong "
            "together by this name. Rename or remove one of the two"
        )


def _probe(
    scenes: Sequence[Scene],
    root: Path | None,
    bands: Sequence[int] | None,
    issues: list[Issue],
) -> dict[Path, ImageFacts]:
    """Return the facts of all images that can be used; there is at least one."""
    facts, broken = probe_images(list(dict.fromkeys(scene.image for scene in scenes)), bands)
    issues += [
        make_issue(
            relative(root, scene.image),
            "broken_image",
            f"broken image: {broken[scene.image]}",
            "dropped",
            image_id=scene.image_id,
            severity="error",
        )
        for scene in scenes
        if scene.image in broken
    ]
    if not facts:
        first, reason = next(iter(broken.items()))
        raise DataError(
            f"{first}: {reason}; none of the {len(broken):,} images can be used. "
            "Replace them, or set dataset.data_root to another folder"
        )
    return facts


def _read_labels(
    scenes: Sequence[Scene],
    facts: Mapping[Path, ImageFacts],
    root: Path | None,
    objects: _Objects,
    issues: list[Issue],
) -> dict[str, float]:
    """Add the objects of all scenes to ``objects``; return image_id -> metres a px.

    A scene whose labels cannot be read is in neither.
    """
    gsds: dict[str, float] = {}
    normalised = []
    for scene in track(scenes, len(scenes), "Reading labels"):
        if scene.read is None:
            objects.add([])
            gsds[scene.image_id] = math.nan
            issues.append(describe_missing_label(scene, root))
            continue
        try:
            content = scene.read(facts[scene.image])
        except LabelFileError as error:
            issues.append(describe_broken_label(scene.source, scene.image_id, error))
            continue
        objects.add(content.objects)
        gsds[scene.image_id] = content.gsd
        if content.is_normalised:
            normalised.append(scene.source)
        issues += describe_other_size(scene, content, facts[scene.image])
        issues += [
            make_issue(
                scene.source,
                bad.kind,
                bad.message,
                "dropped",
                line=bad.line,
                image_id=scene.image_id,
                severity="error",
            )
            for bad in content.bad_lines
        ]
    if normalised:
        raise DataError(
            f"{shorten(normalised)}: all coordinates lie in 0..1, so they are normalised "
            "(fractions of the image's width and height); labels hold px. Multiply x by the width "
            "and y by the height of each image"
        )
    return gsds


def _require_readable(
    scenes: Sequence[Scene], issues: Sequence[Issue], root: Path | None, dataset: DatasetSection
) -> None:
    """Raise if no scene is left, because no label file can be used."""
    if scenes:
        return
    broken = [issue for issue in issues if issue["kind"] == "broken_label_file"]
    hint = describe_other_format(root, dataset.format) if root is not None else ""
    raise DataError(
        f"{root or dataset.place}: none of the {len(broken):,} label files can be used, so no "
        f"image is left. The first is {broken[0]['file']}: {broken[0]['message']}."
        f"{hint or ' Correct or replace them'}"
    )


def _choose_splits(
    scenes: Sequence[Scene], annotations: pd.DataFrame, dataset: DatasetSection, seed: int
) -> list[str]:
    """Return the split of each scene: its own, or one chosen by group."""
    groups = [scene.group or scene.image_id for scene in scenes]
    free = {group for group, scene in zip(groups, scenes, strict=True) if scene.split is None}
    chosen: frozenset[str] = frozenset()
    if free and any(scene.split == "val" for scene in scenes):
        logger.info("Validation images are given: the scenes without a split are all trained on")
    elif free:
        classes_of: dict[str, set[str]] = {group: set() for group in free}
        group_of = {
            scene.image_id: group
            for scene, group in zip(scenes, groups, strict=True)
            if scene.split is None
        }
        names = name_objects(annotations, dataset)
        shown = pd.DataFrame({"image_id": annotations["image_id"], "name": names}).dropna()
        for image_id, name in shown.drop_duplicates().itertuples(index=False):
            if image_id in group_of:
                classes_of[group_of[image_id]].add(name)
        chosen = choose_val_scenes(classes_of, dataset.val_fraction, seed)
        logger.info(
            "No split is given: chose %d of %d scenes for validation (seed %d): %s",
            len(chosen),
            len(free),
            seed,
            shorten(sorted(chosen)) or "none",
        )
    return [
        scene.split or SPLITS[group in chosen] for group, scene in zip(groups, scenes, strict=True)
    ]


def _make_images(
    scenes: Sequence[Scene],
    facts: Mapping[Path, ImageFacts],
    gsds: Mapping[str, float],
    splits: Sequence[str],
) -> pd.DataFrame:
    # Where the labels tell metres a px, they count.
    of_labels = {image_id: {"gsd": gsd} for image_id, gsd in gsds.items() if not math.isnan(gsd)}
    rows = [
        {
            "image_id": scene.image_id,
            "path": str(scene.image),
            "split": split,
            "group": scene.group or scene.image_id,
            "is_tile": scene.is_tile,
            **vars(facts[scene.image]),
            **of_labels.get(scene.image_id, {}),
        }
        for scene, split in zip(scenes, splits, strict=True)
    ]
    return make_table(rows, IMAGES)


def _warn_about_missing_split(
    images: pd.DataFrame, root: Path | None, issues: Sequence[Issue]
) -> None:
    """Raise without a training image; say what happens without a validation image."""
    if not images["split"].eq("train").any():
        errors = [issue for issue in issues if issue["severity"] == "error"]
        first = f". First error: {errors[0]['file']}: {errors[0]['message']}" if errors else ""
        raise DataError(
            f"{root or images['path'].iloc[0]}: no usable image to train on, but {len(images):,} "
            f"in val; put images and their labels into the train split as well{first}"
        )
    if not images["split"].eq("val").any():
        logger.warning(
            "There is no image for validation, so no mAP will be computed; put images and their "
            "labels into the val split as well"
        )
