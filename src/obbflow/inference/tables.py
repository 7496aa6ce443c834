"""Columns of the tables between the nodes of the ``predict`` pipeline."""

from obbflow.tables import RBOX

PREDICTION_IMAGES = {
    "image_id": "string",  # path below production.images without images/ and ending
    "path": "string",  # absolute
    "width": "int64",  # px, as shown
    "height": "int64",
}
WINDOW_DETECTIONS = {
    "image_id": "string",
    "window_x": "int64",  # top left corner of the window in its image, px
    "window_y": "int64",
    "window_width": "int64",  # of the part that shows the image, px
    "window_height": "int64",
    "class_name": "string",
    "score": "float64",
    **RBOX,  # px of the image, le90
}
