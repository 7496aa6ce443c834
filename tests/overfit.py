"""Drawn images that a narrow detector learns by heart, and how well it knows them."""

import math

import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

from obbflow.geometry import normalize_le90, rbox_to_qbox
from obbflow.ops import box_iou_rotated

SIZE = 160  # px
COLOURS = {1: (230, 60, 50), 2: (60, 80, 220)}
SIDES = {1: (50.0, 16.0), 2: (34.0, 20.0)}  # long and thin: the angle decides about the IoU


def scene(seed: int) -> tuple[Tensor, dict[str, Tensor]]:
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


def learn(model: nn.Module, scenes: list, steps: int, batch: int, rate: float = 3e-3) -> nn.Module:
    """Return the model after some steps, each on the next ``batch`` of the scenes."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    for step in range(steps):
        chosen = [scenes[(step * batch + each) % len(scenes)] for each in range(batch)]
        images, targets = [list(part) for part in zip(*chosen, strict=True)]
        loss = sum(model(images, targets).values())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    return model.eval()


def average_precision(found: list, targets: list, label: int) -> float:
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
