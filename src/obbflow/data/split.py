"""The choice of validation scenes where a data set comes without one."""

import hashlib
from collections.abc import Iterable


def choose_val_scenes(image_ids: Iterable[str], val_fraction: float, seed: int) -> frozenset[str]:
    """Return the scenes that are used for validation.

    Whole scenes are chosen, never tiles: tiles of one scene overlap. The order of the choice
    depends on the seed and a scene's name alone, so a scene added later moves at most the scenes
    at the edge of the choice.

    Args:
        image_ids: The scenes, each once.
        val_fraction: Wanted share of validation scenes, between 0 and 1.
        seed: Another seed gives another choice.

    Returns:
        The chosen names, at least one and not all of them; none where there is a single scene.
    """
    scenes = sorted(image_ids, key=lambda name: _rank(name, seed))
    if len(scenes) < 2:
        return frozenset()
    n_val = min(max(round(len(scenes) * val_fraction), 1), len(scenes) - 1)
    return frozenset(scenes[:n_val])


def _rank(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()
