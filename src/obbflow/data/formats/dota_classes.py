"""The class lists of the versions of DOTA, and how labels differ from them.

Source: Xia et al., DOTA: A Large-scale Dataset for Object Detection in Aerial Images (CVPR 2018),
and Ding et al., Object Detection in Aerial Images (TPAMI 2021), for versions 1.5 and 2.0.
"""

import pandas as pd

from obbflow.data.formats.source import Issue, make_issue
from obbflow.errors import did_you_mean
from obbflow.tables import DATA_ISSUES, make_table

_V1_0 = (
    "plane",
    "baseball-diamond",
    "bridge",
    "ground-track-field",
    "small-vehicle",
    "large-vehicle",
    "ship",
    "tennis-court",
    "basketball-court",
    "storage-tank",
    "soccer-ball-field",
    "roundabout",
    "harbor",
    "swimming-pool",
    "helicopter",
)
_V1_5 = (*_V1_0, "container-crane")
_V2_0 = (*_V1_5, "airport", "helipad")

DOTA_CLASSES: dict[str, tuple[str, ...]] = {"1.0": _V1_0, "1.5": _V1_5, "2.0": _V2_0}
"""Value of ``dataset.dota_version`` -> its 15, 16 or 18 classes."""


def compare_with_version(annotations: pd.DataFrame, version: str) -> pd.DataFrame:
    """Return what differs between the classes of labels and those of a version of DOTA.

    Args:
        annotations: Table ``annotations`` as read, before any class is renamed.
        version: A key of ``DOTA_CLASSES``.

    Returns:
        Table ``data_issues``: a warning for each class that the version lacks, at its first line;
        and one note on all its classes that no label has.
    """
    expected = DOTA_CLASSES[version]
    counts = annotations["class_name"].value_counts()
    unlisted = annotations[~annotations["class_name"].isin(expected)]
    issues: list[Issue] = [
        make_issue(
            row["source_file"],
            "class_not_in_version",
            f"class {row['class_name']!r} is not one of the {len(expected)} of DOTA {version}"
            f"{_hint(row['class_name'], expected)} (lines with it: {counts[row['class_name']]:,})",
            "kept",
            line=row["source_line"],
            image_id=row["image_id"],
        )
        for row in unlisted.drop_duplicates("class_name").to_dict("records")
    ]
    absent = [name for name in expected if name not in counts.index]
    if absent:
        message = f"classes of DOTA {version} without a label: {', '.join(absent)}"
        issues.append(make_issue("", "class_without_label", message, "kept", severity="info"))
    return make_table(issues, DATA_ISSUES)


def _hint(name: str, expected: tuple[str, ...]) -> str:
    """Return the version that has this class, or the class that may be meant."""
    for version, classes in DOTA_CLASSES.items():
        if name in classes:
            return f", but of {version}: set dataset.dota_version"
    return did_you_mean(name.lower().replace(" ", "-"), expected)
