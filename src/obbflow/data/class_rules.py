"""Which labels count: classes renamed, left out, allowed, look-alike or difficult ones."""

import logging
from collections.abc import Iterable

import pandas as pd

from obbflow.config import DatasetSection
from obbflow.errors import DataError, did_you_mean
from obbflow.tables import DATA_ISSUES, is_object, make_table

logger = logging.getLogger(__name__)

_SHOWN_ISSUES = 3  # in a message; data_issues has them all


def apply_class_rules(
    annotations: pd.DataFrame, dataset: DatasetSection
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the objects that count, and an issue for each class or kind that was left out.

    The order is ``map_labels``, ``ignore_labels``, ``lookalike_classes``, ``allowed_classes``,
    ``difficult_strategy``. A look-alike is background however hard it is to see: the last two
    keys do not concern it.

    Args:
        annotations: Table ``annotations`` as read.
        dataset: The section with these keys.

    Returns:
        Table ``annotations`` with final class names; look-alikes marked ``lookalike``; difficult
        objects dropped, marked ``ignore`` or left as they are. And table ``data_issues``.

    Raises:
        DataError: If a class is not in ``allowed_classes``; all such classes are named.
    """
    mapped = _rename(annotations["class_name"], dataset)
    is_ignored = mapped.isin(dataset.ignore_labels or ())
    is_lookalike = mapped.isin(dataset.lookalike_classes or ())
    result = annotations.assign(class_name=mapped, lookalike=is_lookalike)[~is_ignored]
    if dataset.allowed_classes is not None:
        _refuse_unlisted(result[~result["lookalike"]], dataset.allowed_classes)
    issues = [
        _summary(
            "ignored_class",
            f"objects of class {name!r} left out by dataset.ignore_labels: {count:,}",
            "dropped",
        )
        for name, count in mapped[is_ignored].value_counts().sort_index().items()
    ]
    issues += [
        _summary(
            "lookalike",
            f"objects of class {name!r} named in dataset.lookalike_classes: {count:,}",
            "kept as hard negatives",
        )
        for name, count in mapped[is_lookalike].value_counts().sort_index().items()
    ]
    is_difficult = result["difficult"] & ~result["lookalike"]
    n_difficult = int(is_difficult.sum())
    if n_difficult and dataset.difficult_strategy != "keep":
        is_dropped = dataset.difficult_strategy == "drop"
        action = "dropped" if is_dropped else "kept as ignore regions"
        message = f"difficult objects {action} by dataset.difficult_strategy: {n_difficult:,}"
        issues.append(_summary("difficult", message, action))
        if is_dropped:
            result = result[~is_difficult]
        else:
            result = result.assign(ignore=result["ignore"] | is_difficult)
    return result.reset_index(drop=True), make_table(issues, DATA_ISSUES)


def name_objects(annotations: pd.DataFrame, dataset: DatasetSection) -> "pd.Series[str]":
    """Return the final class of each object that counts, in the index of ``annotations``.

    Unlike `apply_class_rules` it says nothing about what is left out, and refuses no class.

    Args:
        annotations: Table ``annotations`` as read.
        dataset: ``map_labels``, ``ignore_labels``, ``lookalike_classes``, ``difficult_strategy``.
    """
    names = _rename(annotations["class_name"], dataset)
    counts = ~names.isin((*(dataset.ignore_labels or ()), *(dataset.lookalike_classes or ())))
    if dataset.difficult_strategy != "keep":
        counts &= ~annotations["difficult"]
    return names[counts]


def warn_about_unused_names(annotations: pd.DataFrame, dataset: DatasetSection) -> None:
    """Say which names that settings rename, leave out or call look-alike no label has.

    They may be misspelt. ``difficult_tags`` are gone from the classes once read, so of these only
    all can be missed.

    Args:
        annotations: Table ``annotations`` as read.
        dataset: The section with these keys.
    """
    names = annotations["class_name"]
    _warn_about_unused("map_labels", dataset.map_labels or (), names)
    renamed = _rename(names, dataset)
    _warn_about_unused("ignore_labels", dataset.ignore_labels or (), renamed)
    _warn_about_unused("lookalike_classes", dataset.lookalike_classes or (), renamed)
    if dataset.difficult_tags and not annotations["difficult"].any():
        tags = {tag for name in names.unique() for tag in name.split(", ")}
        for tag in dataset.difficult_tags:
            logger.warning(
                "dataset.difficult_tags: no label has the tag %r%s", tag, did_you_mean(tag, tags)
            )


def require_objects(
    images: pd.DataFrame,
    annotations: pd.DataFrame,
    where: str,
    issues: pd.DataFrame | None = None,
) -> None:
    """Raise unless the training images hold an object.

    Args:
        images: Table ``images``.
        annotations: Table ``annotations`` after all rules.
        where: The data set's folder, for the message.
        issues: Table ``data_issues`` so far; its first rows are named.

    Raises:
        DataError: If there is no object to train on.
    """
    train = images.loc[images["split"] == "train", "image_id"]
    in_train = annotations["image_id"].isin(train)
    if (in_train & is_object(annotations)).any():
        return
    others = {
        "ignore regions": int((in_train & annotations["ignore"]).sum()),
        "look-alikes": int((in_train & annotations["lookalike"]).sum()),
    }
    found = " and ".join(f"{count:,} {name}" for name, count in others.items() if count)
    also = f" (and {found})" if found else ""
    raise DataError(
        f"{where}: the train split has {len(train):,} images and 0 objects that can be used"
        f"{also}; nothing can be learned from it. Check that its label files hold lines like "
        "'x1 y1 x2 y2 x3 y3 x4 y4 class difficult' in px, and the settings "
        "dataset.ignore_labels, dataset.lookalike_classes and "
        f"dataset.difficult_strategy{_first_of(issues)}"
    )


def _first_of(issues: pd.DataFrame | None) -> str:
    """Return the first things that were wrong, one a line, to follow a message."""
    if issues is None or issues.empty:
        return ""
    lines = [
        f"{row['file']}{'' if pd.isna(row['line']) else ':' + str(row['line'])}: {row['message']}"
        for row in issues.head(_SHOWN_ISSUES).to_dict("records")
    ]
    more = len(issues) - len(lines)
    return "\n  ".join([". What was wrong:", *lines, *([f"and {more:,} more"] if more else [])])


def no_object_on_tiles(where: str, n_tiles: int) -> DataError:
    """Return the error that no training tile shows enough of an object.

    Args:
        where: The data set's folder.
        n_tiles: Number of training tiles.
    """
    return DataError(
        f"{where}: {n_tiles:,} training tiles and no object on any of them, so there is no class "
        "to learn; raise tiling.tile_size or lower tiling.min_visible if the objects are larger "
        "than a tile, or check the labels"
    )


def _rename(names: "pd.Series[str]", dataset: DatasetSection) -> "pd.Series[str]":
    """Return the class names after ``map_labels``."""
    renamed = {name: name for name in names.unique()} | (dataset.map_labels or {})
    return names.map(renamed).astype("string")


def _warn_about_unused(key: str, names: Iterable[str], found: "pd.Series[str]") -> None:
    present = set(found.unique())
    for name in names:
        if name not in present:
            logger.warning(
                "dataset.%s: no label has the class %r%s", key, name, did_you_mean(name, present)
            )


def _refuse_unlisted(annotations: pd.DataFrame, allowed: tuple[str, ...]) -> None:
    unlisted = annotations[~annotations["class_name"].isin(allowed)]
    if unlisted.empty:
        return
    counts = unlisted["class_name"].value_counts()
    first = unlisted.drop_duplicates("class_name")
    lines = [
        f"{file}:{line}: class {name!r} is not in dataset.allowed_classes"
        f"{did_you_mean(name, allowed)} (lines with this class: {counts[name]:,})"
        for file, line, name in zip(
            first["source_file"], first["source_line"], first["class_name"], strict=True
        )
    ]
    raise DataError(
        "\n".join(lines)
        + "\nCorrect these labels, list the class in dataset.allowed_classes, rename it with "
        "dataset.map_labels, or leave it out with dataset.ignore_labels."
    )


def _summary(kind: str, message: str, action: str) -> dict[str, object]:
    return {"severity": "info", "kind": kind, "message": message, "action": action}
