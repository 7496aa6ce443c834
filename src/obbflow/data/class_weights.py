"""Class weights of the classification loss, from how often each class occurs."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from obbflow.config import LossSection
from obbflow.errors import ConfigError, DataError, did_you_mean
from obbflow.tables import CLASS_WEIGHTS, make_table

CLIP = (0.3, 3.0)
"""Limits of a weight after division by the mean; so no class weighs over ten times another."""

_WEIGHTED_LOSSES = ("class_weighted", "focal_weighted")

Method = Literal["sqrt", "inv_freq", "effective_num", "log_inv_freq"]


def weigh_classes(
    counts: Mapping[str, int] | pd.Series,
    class_map: Mapping[str, int],
    *,
    method: Method,
    beta: float,
    overrides: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Return the class weight table.

    With n objects of a class, C classes and N objects in all, ``raw`` is for ``sqrt``
    sqrt(max n / n), ``inv_freq`` N / (C n), ``effective_num`` (1 - beta) / (1 - beta^n) and
    ``log_inv_freq`` ln(N / n + 1). ``normalised`` is raw over its mean, ``clipped`` that within
    [0.3, 3]; ``weight`` is the override where there is one, else the clipped value.

    Args:
        counts: Training objects by class name, at least 1 for each class of ``class_map``.
        class_map: Class name -> id, 1..C.
        method: How ``raw`` is computed.
        beta: Of ``effective_num``, in (0, 1).
        overrides: Final weights by class name.

    Returns:
        Table ``class_weights``, one row a class in the order of ids; the background is no row.

    Raises:
        ConfigError: If an override names an unknown class or is no weight.
        ValueError: If a class has no object.

    Source:
        Cui, Jia, Lin, Song, Belongie, "Class-Balanced Loss Based on Effective Number of Samples",
        CVPR 2019, equation 2, for ``effective_num``.

    Example:
        >>> table = weigh_classes(
        ...     {"ship": 4, "helipad": 1}, {"helipad": 1, "ship": 2}, method="sqrt", beta=0.9
        ... )
        >>> table["weight"].round(3).tolist()
        [1.333, 0.667]
    """
    overrides = dict(overrides or {})
    _check_overrides(overrides, class_map)
    names = sorted(class_map, key=class_map.__getitem__)
    n = np.array([counts.get(name, 0) for name in names], dtype=np.float64)
    if not names or (n < 1).any():
        raise ValueError(f"every class needs an object, got {dict(zip(names, n, strict=True))}")
    raw = _raw_weights(n, method, beta)
    normalised = raw / raw.mean()
    clipped = normalised.clip(*CLIP)
    override = np.array([overrides.get(name, np.nan) for name in names], dtype=np.float64)
    columns = {
        "class_name": names,
        "class_id": [class_map[name] for name in names],
        "count": n.astype(np.int64),
        "share": n / n.sum(),
        "raw": raw,
        "normalised": normalised,
        "clipped": clipped,
        "override": override,
        "weight": np.where(np.isnan(override), clipped, override),
    }
    return make_table(pd.DataFrame(columns), CLASS_WEIGHTS)


def class_weight_vector(
    class_weights: pd.DataFrame, class_map: Mapping[str, int], loss: LossSection
) -> list[float] | None:
    """Return the weights by label: the background's at 0, then those of classes 1..C.

    Args:
        class_weights: Table ``class_weights``, or its columns class_name and weight.
        class_map: Class name -> id, 1..C.
        loss: ``loss_type`` and ``background_weight``, of which None means 1.

    Returns:
        C + 1 weights; None for losses that do not weigh classes.

    Raises:
        DataError: If a class of the map has no weight.
    """
    if loss.loss_type not in _WEIGHTED_LOSSES:
        return None
    weight_of = dict(zip(class_weights["class_name"], class_weights["weight"], strict=True))
    names = sorted(class_map, key=class_map.__getitem__)
    missing = [name for name in names if name not in weight_of]
    if missing:
        raise DataError(
            f"class_weights: there is no weight for {', '.join(missing)}; it is of another class "
            "map. Run the data pipeline again: kedro run --pipeline data"
        )
    background = 1.0 if loss.background_weight is None else loss.background_weight
    return [float(background), *(float(weight_of[name]) for name in names)]


def _raw_weights(n: NDArray[np.float64], method: Method, beta: float) -> NDArray[np.float64]:
    if method == "sqrt":
        return np.sqrt(n.max() / n)
    if method == "inv_freq":
        return n.sum() / (len(n) * n)
    if method == "effective_num":
        # 1 - beta^n, without losing digits where beta is close to 1
        return (1 - beta) / -np.expm1(n * np.log(beta))
    if method == "log_inv_freq":
        return np.log(n.sum() / n + 1)
    raise ValueError(f"unknown method {method!r}")


def _check_overrides(overrides: Mapping[str, float], class_map: Mapping[str, int]) -> None:
    problems = [
        f"loss.class_weight_overrides: there is no class {name!r}"
        f"{did_you_mean(name, class_map)}; the classes are {', '.join(class_map)}"
        for name in overrides
        if name not in class_map
    ]
    problems += [
        f"loss.class_weight_overrides: the weight of {name!r} must be a number of 0 or more, "
        f"got {value}"
        for name, value in overrides.items()
        if not 0 <= value < np.inf
    ]
    if problems:
        raise ConfigError("\n".join(problems))
