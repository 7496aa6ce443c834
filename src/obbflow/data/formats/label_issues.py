"""What is wrong with the labels of a scene as a whole, as rows of ``data_issues``."""

from pathlib import Path

from obbflow.data.formats.source import (
    Issue,
    LabelFile,
    LabelFileError,
    Scene,
    make_issue,
    relative,
)
from obbflow.data.images import ImageFacts


def describe_missing_label(scene: Scene, root: Path | None) -> Issue:
    """Return the issue of a scene without labels."""
    return make_issue(
        relative(root, scene.image),
        "image_without_label",
        f"no labels of {scene.image.stem}: the image counts as background",
        "kept",
        image_id=scene.image_id,
    )


def describe_broken_label(source: str, image_id: str | None, error: LabelFileError) -> Issue:
    """Return the issue of an image whose labels cannot be read: nobody knows what it shows.

    Args:
        source: The label file as messages show it.
        image_id: Of the image, where it has one.
        error: What was wrong.
    """
    return make_issue(
        source,
        "broken_label_file",
        f"broken label file: {error.reason}; its image is left out with it",
        "dropped",
        line=error.line,
        image_id=image_id,
        severity="error",
    )


def describe_other_size(scene: Scene, content: LabelFile, facts: ImageFacts) -> list[Issue]:
    """Return an error if labels were made for an image of another size."""
    size = facts.width, facts.height
    if content.size is None or content.size == size:
        return []
    is_turned = content.size == size[::-1]
    because = ", turned by a quarter" if is_turned else ", perhaps resized since"
    message = (
        f"the labels are of an image of {content.size[0]} x {content.size[1]} px, but "
        f"{scene.image.name} has {size[0]} x {size[1]} as shown{because}: the corners may lie "
        "elsewhere"
    )
    return [
        make_issue(
            scene.source,
            "other_image_size",
            message,
            "kept",
            image_id=scene.image_id,
            severity="error",
        )
    ]
