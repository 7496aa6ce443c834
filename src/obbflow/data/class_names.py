"""Classes whose names are nearly those of others: most likely one class, written in two ways."""

import json
import re
import unicodedata

import pandas as pd

from obbflow.tables import DATA_ISSUES, make_table

RARER = 10
"""A name that differs by a letter is reported if the other one is this many times as frequent."""


def find_near_misses(annotations: pd.DataFrame, expected: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return a warning for each class whose name is nearly that of a more frequent one.

    Names that differ in case, blanks, hyphens or underscores alone are always reported. One
    letter more, less or other is reported where the other class is `RARER` times as frequent;
    digits are no letters, as they tell types apart: Boeing737 is no Boeing747.

    Args:
        annotations: Table ``annotations``, classes renamed.
        expected: Names that are right as they are.

    Returns:
        Table ``data_issues``; the message holds the line that would merge both classes.
    """
    counts = annotations["class_name"].value_counts()
    names = sorted(counts.index, key=lambda name: (-counts[name], name))
    meant = {name: other for name, other in _pair(names, counts).items() if name not in expected}
    first = annotations[annotations["class_name"].isin(list(meant))].drop_duplicates("class_name")
    rows = [
        {
            "file": row["source_file"],
            "line": row["source_line"],
            "image_id": row["image_id"],
            "severity": "warning",
            "kind": "class_name_near_miss",
            "message": _describe(row["class_name"], meant[row["class_name"]], counts),
            "action": "kept",
        }
        for row in first.to_dict("records")
    ]
    return make_table(rows, DATA_ISSUES)


def _pair(names: list[str], counts: "pd.Series[int]") -> dict[str, str]:
    """Return names, most frequent first, with the more frequent name that each may stand for."""
    pairs: dict[str, str] = {}
    most_frequent: dict[str, str] = {}
    for name in names:
        folded = _fold(name)
        keys = _blank_a_letter(folded)
        near = [most_frequent[key] for key in keys if key in most_frequent]
        near = [other for other in near if counts[other] >= RARER * counts[name]]
        if folded in most_frequent:
            near = [most_frequent[folded]]
        if near:
            other = max(near, key=lambda other: (counts[other], other))
            pairs[name] = pairs.get(other, other)
        most_frequent.setdefault(folded, name)
        if counts[name] >= RARER:  # else no class is that much rarer
            for key in keys:
                most_frequent.setdefault(key, name)
    return pairs


def _fold(name: str) -> str:
    """Return a name without case, blanks, hyphens and underscores."""
    return re.sub(r"[\s_-]", "", unicodedata.normalize("NFKC", name).casefold())


def _blank_a_letter(name: str) -> list[str]:
    """Return patterns: two names share one if a letter, not a digit, is all that differs.

    Example:
        >>> _blank_a_letter("c4")
        [' 4', ' c4', 'c 4', 'c4 ']
    """
    replaced = [
        f"{name[:place]} {name[place + 1 :]}"
        for place, letter in enumerate(name)
        if not letter.isdigit()
    ]
    return replaced + [f"{name[:place]} {name[place:]}" for place in range(len(name) + 1)]


def _describe(name: str, other: str, counts: "pd.Series[int]") -> str:
    line = json.dumps({name: other}, ensure_ascii=False)
    return (
        f"class {name!r} (objects: {counts[name]:,}) may be {other!r} ({counts[other]:,}); "
        f"if so, set dataset.map_labels: {line}"
    )
