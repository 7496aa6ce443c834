"""The choice of validation scenes where a data set comes without one."""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def choose_val_scenes(
    classes_of: Mapping[str, Collection[str]], val_fraction: float, seed: int
) -> frozenset[str]:
    """Return the scenes that are used for validation.

    Whole scenes are chosen, never tiles: tiles of one scene overlap. The first choice depends on
    the seed and a scene's name alone; scenes with a class of their own are the last to be taken,
    so that it is trained on. Then scenes are exchanged until every class that two or more scenes
    show is trained on and validated on, classes of the fewest scenes first. An exchange never
    takes a class away from a split, so where scenes hold several rare classes one of these may
    still be in a single split. Where rare classes need it, more scenes validate than
    ``val_fraction`` says.

    A scene added later moves at most the scene at the edge of the choice, and those that are
    exchanged for classes of few scenes.

    Args:
        classes_of: Scene -> the classes it shows; their order does not matter.
        val_fraction: Wanted share of validation scenes, between 0 and 1.
        seed: Another seed gives another choice.

    Returns:
        The chosen names, at least one and not all of them; none where there is a single scene.
    """
    if len(classes_of) < 2:
        return frozenset()
    total = Counter(name for classes in classes_of.values() for name in set(classes))
    alone = {scene: any(total[name] == 1 for name in own) for scene, own in classes_of.items()}
    ranked = sorted(classes_of, key=lambda scene: (alone[scene], _rank(scene, seed)))
    n_val = min(max(round(len(ranked) * val_fraction), 1), len(ranked) - 1)
    choice = _Choice({scene: frozenset(classes_of[scene]) for scene in ranked}, ranked[:n_val])
    for name in sorted(total, key=lambda name: (total[name], name)):
        if total[name] > 1:
            choice.put_into_both(name)
    # Back to the wanted share, as far as that takes no class away from a split.
    for scene in reversed(ranked):
        if len(choice.val) > n_val and scene in choice.val:
            choice.move_if_free(scene)
    for scene in ranked:
        if len(choice.val) < n_val and scene not in choice.val:
            choice.move_if_free(scene)
    return frozenset(choice.val)


class _Choice:
    """Which scenes validate, and how many of these show each class."""

    def __init__(self, classes_of: Mapping[str, frozenset[str]], val: Iterable[str]) -> None:
        self.val = set(val)
        self._classes_of = classes_of
        self._scenes_of: dict[str, list[str]] = {}
        for scene, classes in classes_of.items():
            for name in classes:
                self._scenes_of.setdefault(name, []).append(scene)
        self._in_val = Counter(name for scene in self.val for name in classes_of[scene])

    def put_into_both(self, name: str) -> None:
        """Move the scene that helps most classes if all scenes with this one are in one split."""
        if not self._is_missing(name):
            return
        free = [scene for scene in self._scenes_of[name] if self._is_free(scene)]
        if free:
            self._move(max(free, key=self._n_helped))

    def move_if_free(self, scene: str) -> None:
        """Move a scene into the other split unless it is the last, or the last with a class."""
        in_val = scene in self.val
        n_beside = (len(self.val) if in_val else len(self._classes_of) - len(self.val)) - 1
        if n_beside and self._is_free(scene):
            self._move(scene)

    def _n_helped(self, scene: str) -> int:
        return sum(self._is_missing(name) for name in self._classes_of[scene])

    def _is_missing(self, name: str) -> bool:
        """Return whether a class of several scenes is in one split only."""
        n_scenes = len(self._scenes_of[name])
        return n_scenes > 1 and self._in_val[name] in {0, n_scenes}

    def _is_free(self, scene: str) -> bool:
        """Return whether its classes stay in the split that it leaves; train may get the only."""
        own = self._classes_of[scene]
        if scene in self.val:
            return all(self._in_val[name] > 1 or len(self._scenes_of[name]) == 1 for name in own)
        return all(len(self._scenes_of[name]) - self._in_val[name] > 1 for name in own)

    def _move(self, scene: str) -> None:
        step = -1 if scene in self.val else 1
        self.val ^= {scene}
        for name in self._classes_of[scene]:
            self._in_val[name] += step


def _rank(name: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode()).digest()
