"""Images that are trained on and validated on: scores of these say nothing about new images."""

from pathlib import Path

import pandas as pd

from obbflow.data.formats.source import Issue, make_issue, relative


def find_leaks(images: pd.DataFrame, root: Path | None) -> list[Issue]:
    """Return what train and val share.

    An error for each validation image whose very bytes are also trained on, and one for each
    scene of which other parts are trained on: they may overlap, and look alike in any case.

    Args:
        images: Table ``images``.
        root: Files below it are named relative to it; None: all are absolute.

    Returns:
        Rows of ``data_issues``; the images stay where they are.
    """
    train = images[images["split"] == "train"]
    val = images[images["split"] == "val"]
    first_copy = train.drop_duplicates("sha256").set_index("sha256")["image_id"]
    is_copy = val["sha256"].isin(first_copy.index)
    same_bytes = [
        make_issue(
            relative(root, Path(row["path"])),
            "same_image_in_train_and_val",
            f"the same file as {first_copy[row['sha256']]}",
            "kept",
            image_id=row["image_id"],
            severity="error",
        )
        for row in val[is_copy].to_dict("records")
    ]
    n_train = train["group"].value_counts()
    others = val[~is_copy & val["group"].isin(n_train.index)]
    same_scene = [
        make_issue(
            relative(root, Path(rows["path"].iloc[0])),
            "same_scene_in_train_and_val",
            f"images cut from scene {group!r}: {n_train[group]:,} in train, {len(rows):,} in val; "
            "move them into one split",
            "kept",
            image_id=rows["image_id"].iloc[0],
            severity="error",
        )
        for group, rows in others.groupby("group", sort=True)
    ]
    return same_bytes + same_scene
