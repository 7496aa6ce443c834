"""A small data set in each format that is read."""

import json
from collections.abc import Sequence
from pathlib import Path

from scenes import write_scene

W, H = 64, 48
_SIZE = "<size><width>64</width><height>48</height></size>"
_HRSC = (
    "<HRSC_Image><Img_SizeWidth>64</Img_SizeWidth><Img_SizeHeight>48</Img_SizeHeight>\n"
    "<HRSC_Objects><HRSC_Object><mbox_cx>20</mbox_cx><mbox_cy>20</mbox_cy><mbox_w>20</mbox_w>"
    "<mbox_h>10</mbox_h><mbox_ang>0.5</mbox_ang></HRSC_Object></HRSC_Objects></HRSC_Image>"
)
_ROLABELIMG = (
    f"<annotation>{_SIZE}<object><name>ship</name><robndbox><cx>20</cx><cy>20</cy><w>20</w>"
    "<h>10</h><angle>0.5</angle></robndbox></object></annotation>"
)
_FAIR1M = (
    f"<annotation>{_SIZE}<objects><object><coordinate>pixel</coordinate><possibleresult>"
    "<name>ship</name></possibleresult><points><point>10,10</point><point>30,10</point>"
    "<point>30,20</point><point>10,20</point><point>10,10</point></points></object></objects>"
    "</annotation>"
)
_GEOJSON = json.dumps(
    {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "geometry": {
                    "type": "Polygon",
                    "coordinates": [[[10, 10], [30, 10], [30, 20], [10, 20], [10, 10]]],
                },
                "properties": {"tags": ["ship"]},
            }
        ],
    }
)
_COCO = json.dumps(
    {
        "images": [{"id": 1, "file_name": "P1.png", "width": 64, "height": 48}],
        "annotations": [
            {"image_id": 1, "category_id": 1, "segmentation": [[10, 10, 30, 10, 30, 20, 10, 20]]}
        ],
        "categories": [{"id": 1, "name": "ship"}],
    }
)
_PLAYGROUND = (
    "tile_relpath,dataset_id,zone_id,image_id,tile_id,dota_coords,class_name,difficult\n"
    "images/P1.png,d,z,i,P1,10 10 30 10 30 20 10 20,ship,0\n"
)
_AIRCRAFT = (
    'id,image_id,geometry,class\n1,P1.png,"[(10, 10), (30, 10), (30, 20), (10, 20)]",Airplane\n'
)

FORMATS = {
    "dota": ("labelTxt/{}.txt", "10 10 30 10 30 20 10 20 ship 0\n"),
    "airbus_playground": ("d/labels/z/{}.json", _GEOJSON),
    "airbus_playground-csv": ("annotations.csv", _PLAYGROUND),
    "airbus_playground-aircraft": ("annotations.csv", _AIRCRAFT),
    "hrsc": ("Annotations/{}.xml", _HRSC),
    "hrsc-rolabelimg": ("Annotations/{}.xml", _ROLABELIMG),
    "fair1m": ("labelXml/{}.xml", _FAIR1M),
    "yolo_obb": ("labels/{}.txt", "0 .1 .1 .5 .1 .5 .4 .1 .4\n"),
    "coco": ("annotations/instances.json", _COCO),
}
"""``dataset.format``, "-" and a kind where it has several -> label file and its text."""


def write_sample(
    root: Path, name: str, images: Sequence[str] = ("P1",), *, size: tuple[int, int] = (W, H)
) -> None:
    """Write images, each with an object where the format has a label file an image."""
    place, text = FORMATS[name]
    for image in images:
        path = write_scene(root, image, lines=None, size=size)
        if name == "airbus_playground":
            tile = root / f"d/samples/z/i/{path.name}"
            tile.parent.mkdir(parents=True, exist_ok=True)
            path.rename(tile)
        label = root / place.format(image)
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(text, encoding="utf-8")
    if name == "airbus_playground":
        (root / "images").rmdir()
    if name == "yolo_obb":
        (root / "data.yaml").write_text("names: [ship]\n", encoding="utf-8")
    if name != "dota":
        (root / "labelTxt").rmdir()
