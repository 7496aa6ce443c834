"""The words of the report: facts, findings and numbers as people read them."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pandas as pd

_FEW_OBJECTS = 30  # below, an AP changes much with a few objects
_BYTES_A_GB = 1e9


def format_number(value: object, digits: int = 3) -> str:
    """Return a number for people: ``1,234``, ``0.917``, or "n/a" when there is none.

    Args:
        value: A number, None or NaN.
        digits: Decimals; 0: a whole number.
    """
    if value is None or not isinstance(value, int | float) or math.isnan(value):
        return "n/a"
    return f"{value:,.{digits}f}"


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, e.g. ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def format_sections(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return nested settings as text, a line a key; values are JSON, which YAML reads as well."""
    lines = []
    for name, values in sections.items():
        lines.append(f"{name}:")
        lines += [
            f"  {key}: {json.dumps(value, ensure_ascii=False, default=str)}"
            for key, value in values.items()
        ]
    return "\n".join(lines)


def describe_facts(
    record: Mapping[str, Any], tile_index: pd.DataFrame, class_weights: pd.DataFrame
) -> list[tuple[str, str]]:
    """Return the facts of a run as (name, text); what was not recorded says so."""
    configuration = record.get("configuration") or {}
    experiment = configuration.get("experiment") or {}
    model = configuration.get("model") or {}
    detector = f"{experiment.get('model_type', 'n/a')}, backbone {model.get('backbone', 'n/a')}"
    memory = (record.get("peak_memory_bytes") or {}).get("host")
    parameters = (record.get("parameters") or {}).get("all")
    return [
        ("Run", str(record.get("run_id") or "n/a")),
        ("Started", _format_time(record.get("started"))),
        ("Training time", format_duration(record["seconds"]) if "seconds" in record else "n/a"),
        ("Epochs", format_number(record.get("epochs_completed"), 0)),
        ("Detector", detector),
        ("Parameters", format_number(parameters, 0)),
        ("Training data", _describe_split(tile_index, "train")),
        ("Validation data", _describe_split(tile_index, "val")),
        *_describe_self_test(tile_index.attrs.get("geometry_check")),
        ("Training objects", format_number(int(class_weights["count"].sum()), 0)),
        ("Classes", format_number(len(class_weights), 0)),
        ("Seed", str(experiment.get("seed", "n/a"))),
        ("Device", _describe_device(record.get("devices") or {})),
        ("Peak memory", f"{memory / _BYTES_A_GB:.1f} GB" if memory else "n/a"),
        ("Code", _describe_code(record.get("git") or {})),
        ("Software", _describe_software(record)),
    ]


def describe_findings(
    metrics: Mapping[str, Any], class_metrics: pd.DataFrame, record: Mapping[str, Any]
) -> list[str]:
    """Return what the numbers say, in sentences, with what limits them."""
    if metrics.get("mAP") is None:
        return [
            f"There is no score, because of this: {metrics.get('reason') or 'not recorded'}.",
            "The training itself is described below.",
        ]
    sentences = [
        f"On {metrics['n_images']:,} validation tiles with {metrics['n_objects']:,} objects the "
        f"detector reaches a mean average precision of {metrics['mAP']:.3f} at IoU "
        f"{metrics['iou_threshold']:g}, and {metrics['AP50_95']:.3f} on average over IoU 0.50 to "
        "0.95. IoU is that of the rotated boxes, computed exactly."
    ]
    scored = class_metrics.dropna(subset=["ap50"]).sort_values("ap50", ascending=False)
    best, weakest = scored.iloc[0], scored.iloc[-1]
    if best["ap50"] > weakest["ap50"]:
        sentences.append(
            f"Best class: {best['class_name']} (AP50 {best['ap50']:.3f}). Weakest: "
            f"{weakest['class_name']} (AP50 {weakest['ap50']:.3f}, {weakest['n_gt']:,} objects)."
        )
    return sentences + _describe_weights(metrics, record) + _limits(metrics, scored)


def _describe_weights(metrics: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Return which epoch was scored, and what that means for the numbers."""
    epoch, epochs = metrics.get("epoch"), record.get("epochs_completed")
    if epoch is None:
        return []
    sentence = f"The weights are those of epoch {epoch}{f' of {epochs}' if epochs else ''}"
    chosen_by = str((record.get("best") or {}).get("metric") or "")
    if chosen_by.startswith("val/"):
        return [
            f"{sentence}. That epoch was chosen on the same validation tiles, so new images may "
            "score somewhat lower."
        ]
    return [f"{sentence}{f', chosen by {chosen_by}' if chosen_by else ''}."]


def _limits(metrics: Mapping[str, Any], scored: pd.DataFrame) -> list[str]:
    """Return what a reader should know before trusting single numbers."""
    sentences = []
    few = scored.loc[scored["n_gt"] < _FEW_OBJECTS, "class_name"].tolist()
    if few:
        sentences.append(
            f"Fewer than {_FEW_OBJECTS} validation objects: {_list(few)}. Such an AP changes "
            "much with a few objects."
        )
    absent = metrics.get("classes_without_ground_truth") or []
    if absent:
        sentences.append(
            f"Without a validation object, and so without AP and not in the mean: {_list(absent)}."
        )
    unknown = metrics.get("not_trainable") or {}
    if unknown:
        names = [f"{name} ({count:,})" for name, count in unknown.items()]
        sentences.append(
            f"Only in the validation data, so never learned and not in any number: {_list(names)}."
        )
    return sentences


def _list(names: list[str], shown: int = 6) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _describe_split(tile_index: pd.DataFrame, split: str) -> str:
    rows = tile_index[tile_index["split"] == split]
    images, tiles = rows["image_id"].nunique(), len(rows)
    image_word, tile_word = "image" if images == 1 else "images", "tile" if tiles == 1 else "tiles"
    return f"{images:,} {image_word}, {tiles:,} {tile_word}"


def _describe_self_test(check: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the fact of the tiling self-test; none where tiles were cut before there was one."""
    if check is None:
        return []
    if check["n_fitting"] == 0:
        return [("Tiling self-test", "no object fits into the overlap")]
    text = (
        f"{check['n_whole']:,} of {check['n_fitting']:,} objects that fit into the overlap are "
        f"whole on a tile and come back to within {check['largest_error']:.1g} px"
    )
    return [("Tiling self-test", text)]


def _describe_device(devices: Mapping[str, Any]) -> str:
    if not devices:
        return "n/a"
    names = devices.get("cuda") or []
    where = names[0] if names and devices.get("used") != "cpu" else f"CPU, {devices['cpus']} cores"
    return f"{where} ({devices.get('precision', 'precision n/a')})"


def _describe_code(git: Mapping[str, Any]) -> str:
    commit = git.get("commit")
    if not commit:
        return "not under version control"
    return f"{commit[:10]}{' with uncommitted changes' if git.get('dirty') else ''}"


def _describe_software(record: Mapping[str, Any]) -> str:
    libraries = record.get("libraries") or {}
    parts = [("obbflow", record.get("package_version")), ("Python", record.get("python"))]
    parts += [(name, libraries.get(name)) for name in ("torch", "kedro")]
    known = [f"{name} {version}" for name, version in parts if version]
    return ", ".join(known) or "n/a"


def _format_time(text: str | None) -> str:
    """Return an ISO time as ``2026-12-01 03:15 UTC``; run ids and the like stay as they are."""
    if not text:
        return "n/a"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".strip()
