"""A narrow detector learns four drawn images by heart: coders, matching, sampling and NMS agree."""

import math

import pytest
import torch
from PIL import Image, ImageDraw

from obbflow.config import LossSection, ModelSection
from obbflow.geometry import normalize_le90, rbox_to_qbox
from obbflow.models import build_model
from obbflow.ops import box_iou_rotated

SIZE, STEPS = 160, 120
COLOURS = {1: (230, 60, 50), 2: (60, 80, 220)}
SIDES = {1: (50.0, 16.0), 2: (34.0, 20.0)}  # long and thin: the angle decides about the IoU
NARROW = ModelSection(
    backbone="resnet18",
    pretrained_backbone=False,
    backbone_width=0.25,
    freeze_batch_norm=False,
    fpn_channels=32,
    roi_fc_channels=128,
    anchor_scales=(8.0,),
    rpn_pre_nms_top_n=200,
    rpn_post_nms_top_n=100,
    rpn_batch_size_per_image=64,
    roi_batch_size_per_image=64,
    roi_norm_factor=None,
    roi_proj_xy=True,
    final_nms_iou_threshold=0.3,
)


def scene(seed):
    """Return an image of four rectangles of two classes on noise, and its target."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(90, 130, (SIZE, SIZE, 3), generator=generator, dtype=torch.uint8)
    picture = Image.fromarray(noise.numpy())
    rboxes, labels = [], []
    for place in range(4):
        label = place % 2 + 1
        dx, dy, grow, turn = torch.rand(4, generator=generator).tolist()
        centre = (32 + 80 * (place % 2) + 16 * dx, 32 + 80 * (place // 2) + 16 * dy)
        w, h = (side * (0.9 + 0.2 * grow) for side in SIDES[label])
        rboxes.append([*centre, w, h, math.pi * (turn - 0.5)])
        labels.append(label)
    rboxes = normalize_le90(torch.tensor(rboxes))
    for qbox, label in zip(rbox_to_qbox(rboxes).tolist(), labels, strict=True):
        ImageDraw.Draw(picture).polygon(qbox, fill=COLOURS[label])
    pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    image = pixels.reshape(SIZE, SIZE, 3).permute(2, 0, 1).float() / 255
    return (image - 0.45) / 0.25, {"rboxes": rboxes, "labels": torch.tensor(labels)}


@pytest.fixture(scope="module")
def scenes():
    return [scene(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def learnt(scenes):
    """The detector after some steps on the four images."""
    torch.manual_seed(0)
    model = build_model(NARROW, len(SIDES), loss=LossSection(loss_type="cross_entropy")).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
    pictures, targets = [list(part) for part in zip(*scenes, strict=True)]
    for _ in range(STEPS):
        loss = sum(model(pictures, targets).values())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def average_precision(found, targets, label):
    """Return the area under the precision-recall steps of one class at IoU 0.5."""
    answers, count = [], 0
    for detections, target in zip(found, targets, strict=True):
        is_label = detections["labels"] == label
        gt = target["rboxes"][target["labels"] == label]
        overlaps, taken = box_iou_rotated(detections["rboxes"][is_label], gt), set()
        count += len(gt)
        for score, row in zip(detections["scores"][is_label].tolist(), overlaps, strict=True):
            best = int(row.argmax())
            is_hit = bool(row[best] >= 0.5) and best not in taken
            taken |= {best} if is_hit else set()
            answers.append((score, is_hit))
    hits, area = 0, 0.0
    for rank, (_, is_hit) in enumerate(sorted(answers, reverse=True), start=1):
        hits += is_hit
        area += is_hit * hits / rank / count
    return area


def test_every_object_is_found_and_nothing_else(learnt, scenes):
    pictures, targets = [list(part) for part in zip(*scenes, strict=True)]
    with torch.no_grad():
        found = learnt(pictures)
    for label in SIDES:
        assert average_precision(found, targets, label) >= 0.9
    # Boxes of these shapes that are level instead of turned by 45 degrees reach 0.3 to 0.5.
    best = [
        box_iou_rotated(target["rboxes"], detections["rboxes"]).amax(dim=1)
        for detections, target in zip(found, targets, strict=True)
    ]
    assert torch.cat(best).mean() > 0.8


def test_the_region_head_turns_proposals_towards_the_object(learnt, scenes):
    picture, targets = torch.stack([image for image, _ in scenes]), [each for _, each in scenes]
    with torch.no_grad():
        levels = learnt.fpn(learnt.backbone(picture))
        gains = []  # one turn alone gains 0.01 to 0.12, by the seed; both together 0.06 to 0.11
        for turn in (-0.2, 0.2):
            proposals = [t["rboxes"] + torch.tensor([0, 0, 0, 0, turn]) for t in targets]
            _, deltas = learnt.roi_head(levels, proposals)
            priors = torch.cat(proposals)
            refined = learnt.roi_head.coder.decode(priors, deltas)
            gt = torch.cat([t["rboxes"] for t in targets])
            before, after = (box_iou_rotated(b, gt).diagonal().mean() for b in (priors, refined))
            gains.append((after - before).item())
    assert sum(gains) / 2 > 0.03
