"""Time and memory of the detectors: training steps beside their bare layers, inference, stages.

``python benchmarks/models.py`` builds each detector with its published settings and random weights
and measures, in a process of its own for each line, a training step (forward, losses, backward,
SGD), and the convolution and linear layers of that step alone: the same modules on inputs of the
same shapes, forward and backward, one after the other. Steps and layers are measured in turn.
Further tables show the time of each stage, inference, and how the memory of a step grows with the
number of objects. Runs on Linux.
"""

import argparse
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor, nn

from measuring import Target, describe_machine, judge, peak_megabytes
from obbflow.config import LossSection, ModelSection
from obbflow.models import build_model
from obbflow.models.build import DETECTORS

NUM_CLASSES = 15
STEP_LIMIT = 1.3  # time of a step over that of its layers
MEMORY_LIMIT = 1.2  # of a step with 2,000 objects over one with 10
SETTINGS: dict[str, dict[str, Any]] = {
    "oriented_rcnn": {
        "anchor_scales": (8.0,),
        "rpn_post_nms_top_n": 2000,
        "rpn_nms_threshold": 0.8,
        "roi_norm_factor": None,
        "roi_proj_xy": True,
    },
    "rotated_faster_rcnn": {
        "anchor_scales": (8.0,),
        "rpn_post_nms_top_n": 2000,
        "roi_sampling_ratio": 0,
    },
    "rotated_retinanet": {"use_hbb_for_matching": False},
    "rotated_fcos": {},
}
"""What differs from the defaults in the published configurations, 1x le90 on DOTA."""

# Of a stage: the module's attribute path, the method, what it is called in the table.
STAGES = (
    ("backbone", "forward", "backbone"),
    ("fpn", "forward", "FPN"),
    ("rpn", "forward", "RPN or dense head"),
    ("head", "forward", "RPN or dense head"),
    ("rpn", "propose", "proposals"),
    ("rpn", "losses", "assign and losses"),
    ("head", "losses", "assign and losses"),
    ("roi_head", "sample_regions", "assign regions"),
    ("roi_head", "losses", "RoI head"),
    ("roi_head", "forward", "RoI head, its layers"),
)


class Case(NamedTuple):
    """What is measured in one process."""

    name: str
    backbone: str
    side: int
    batch: int
    objects: int
    threads: int
    channels_last: bool


def build(case: Case) -> nn.Module:
    """Return a detector with random weights; stem and first stage are frozen, batch norms too."""
    torch.manual_seed(0)
    section = ModelSection(
        backbone=case.backbone,
        pretrained_backbone=False,
        trainable_layers=3,
        final_nms_iou_threshold=0.1,
        max_detections_per_image=2000,
        **SETTINGS.get(case.name, {}),
    )
    loss = LossSection(loss_type="cross_entropy")
    model = build_model(section, NUM_CLASSES, model_type=case.name, loss=loss)
    layout = torch.channels_last if case.channels_last else torch.contiguous_format
    return model.to(memory_format=layout)


def draw(case: Case) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """Return noise images and objects of 8 to 64 px at random places."""
    generator = torch.Generator().manual_seed(1)
    images, targets = [], []
    for _ in range(case.batch):
        images.append(torch.randn(3, case.side, case.side, generator=generator))
        centre = torch.rand(case.objects, 2, generator=generator) * case.side
        sides = 8 * 8 ** torch.rand(case.objects, 2, generator=generator)
        sides = sides.sort(dim=1, descending=True).values
        angle = (torch.rand(case.objects, 1, generator=generator) - 0.5) * math.pi
        labels = torch.randint(1, NUM_CLASSES + 1, (case.objects,), generator=generator)
        targets.append({"rboxes": torch.cat([centre, sides, angle], dim=1), "labels": labels})
    return images, targets


class LayerCall(NamedTuple):
    """One call of a layer in a step."""

    layer: nn.Module
    given: Tensor


def record_layers(model: nn.Module, run: Callable[[], None]) -> list[LayerCall]:
    """Return the calls of convolution and linear layers in ``run``, with inputs of their own."""
    calls = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        given = torch.empty_like(inputs[0]).normal_()  # the layout stays
        calls.append(LayerCall(layer, given.requires_grad_(inputs[0].requires_grad)))

    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    handles = [layer.register_forward_pre_hook(note) for layer in layers]
    run()
    for handle in handles:
        handle.remove()
    return calls


def run_layers(calls: list[LayerCall]) -> None:
    """Run each layer forward, and backward where a parameter or what came before learns."""
    for layer, given in calls:
        given.grad = None
        for parameter in layer.parameters():
            parameter.grad = None
        out = layer(given)
        if out.requires_grad:
            out.backward(out.detach())


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: list[Tensor],
    targets: list[dict[str, Tensor]],
) -> None:
    """Take one optimizer step."""
    optimizer.zero_grad(set_to_none=True)
    sum(model(images, targets).values()).backward()
    optimizer.step()


def measure_step(case: Case, repeats: int) -> dict[str, Any]:
    """Return seconds of a step and of its layers alone, and the memory that a step adds."""
    torch.set_num_threads(case.threads)
    model, (images, targets) = build(case).train(), draw(case)
    learning = [each for each in model.parameters() if each.requires_grad]
    # Rate 0: random weights must not run away, and every step does the same.
    optimizer = torch.optim.SGD(learning, lr=0.0, momentum=0.9, weight_decay=1e-4)
    step = partial(train_step, model, optimizer, images, targets)
    before = peak_megabytes()
    step()
    memory = peak_megabytes() - before
    calls = record_layers(model, step)
    layers = partial(run_layers, calls)
    times: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeats):
        for name, run in (("step", step), ("layers", layers)):
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    ratios = [a / b for a, b in zip(times["step"], times["layers"], strict=True)]
    return {
        "step s": statistics.median(times["step"]),
        "layers s": statistics.median(times["layers"]),
        "step / layers": statistics.median(ratios),
        "images/s": case.batch / statistics.median(times["step"]),
        "MB": memory,
    }


@contextmanager
def timed_stages(model: nn.Module) -> Iterator[dict[str, float]]:
    """Yield stage -> seconds, filled while the model runs."""
    seconds: dict[str, float] = defaultdict(float)
    replaced = []

    def timed(function: Callable[..., Any], stage: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            started = time.perf_counter()
            result = function(*args, **kwargs)
            seconds[stage] += time.perf_counter() - started
            return result

        return call

    for path, method, stage in STAGES:
        module = getattr(model, path, None)
        if module is not None and hasattr(module, method):
            setattr(module, method, timed(getattr(module, method), stage))
            replaced.append((module, method))
    yield seconds
    for module, method in replaced:
        delattr(module, method)


def measure_stages(case: Case, repeats: int) -> dict[str, Any]:
    """Return the share of each stage in a training step."""
    torch.set_num_threads(case.threads)
    model, (images, targets) = build(case).train(), draw(case)
    sum(model(images, targets).values()).backward()
    total: dict[str, float] = defaultdict(float)
    with timed_stages(model) as seconds:
        for _ in range(repeats):
            started = time.perf_counter()
            loss = sum(model(images, targets).values())
            half = time.perf_counter()
            loss.backward()
            total["forward"] += half - started
            total["backward"] += time.perf_counter() - half
    step = total["forward"] + total["backward"]
    inner = seconds.pop("RoI head, its layers", 0.0)
    if "RoI head" in seconds:
        seconds |= {"RoI head": inner, "RoI losses": seconds["RoI head"] - inner}
    shares = {stage: 100 * spent / step for stage, spent in seconds.items()}
    return {**shares, "backward": 100 * total["backward"] / step}


def measure_inference(case: Case, repeats: int) -> dict[str, Any]:
    """Return images a second at inference, and the memory that it adds."""
    torch.set_num_threads(case.threads)
    model, (images, _) = build(case).eval(), draw(case)
    before = peak_megabytes()
    with torch.inference_mode():
        found = model(images)
        times = []
        for _ in range(repeats):
            started = time.perf_counter()
            model(images)
            times.append(time.perf_counter() - started)
    return {
        "images/s": case.batch / statistics.median(times),
        "MB": peak_megabytes() - before,
        "detections": sum(len(each["scores"]) for each in found),
    }


def in_own_process(
    measure: Callable[[Case, int], dict[str, Any]], case: Case, repeats: int
) -> dict[str, Any]:
    """Return a row of a table."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(measure, case, repeats).result()
    about = case._asdict()
    return {key: about[key] for key in ("name", "backbone", "side", "batch", "objects")} | found


def show(title: str, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Print a table and return it."""
    table = pd.DataFrame(rows)
    text = table.to_string(index=False, float_format="{:.3g}".format, na_rep="")
    print(f"\n{title}\n\n{text}", flush=True)
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(DETECTORS), default=list(DETECTORS))
    parser.add_argument("--backbones", nargs="+", default=["resnet18", "resnet50"])
    parser.add_argument("--side", type=int, default=512)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--objects", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--contiguous", action="store_true", help="instead of channels last")
    parser.add_argument("--quick", action="store_true", help="small, only to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.backbones, options.batches, options.objects = ["resnet18"], [1], [10]
        options.side, options.repeats = 128, 1
    print(describe_machine(options.threads))

    def case(name: str, backbone: str, batch: int, objects: int) -> Case:
        return Case(
            name, backbone, options.side, batch, objects, options.threads, not options.contiguous
        )

    steps = [
        in_own_process(measure_step, case(name, backbone, batch, objects), options.repeats)
        for name in options.only
        for backbone in options.backbones
        for batch in options.batches
        for objects in options.objects
    ]
    table = show("Training step beside its convolution and linear layers alone", steps)
    first, most = options.backbones[0], max(options.objects)
    stages = [
        in_own_process(measure_stages, case(name, first, 1, most), options.repeats)
        for name in options.only
    ]
    show("Share of each stage in a training step, %", stages)
    inference = [
        in_own_process(measure_inference, case(name, backbone, 1, 0), options.repeats)
        for name in options.only
        for backbone in options.backbones
    ]
    show("Inference", inference)
    memory = [
        in_own_process(measure_step, case(name, first, 1, objects), 1)
        for name in options.only
        for objects in (10, 2000)
    ]
    grown = show("Memory of a step and the number of objects", memory)
    targets = [
        Target(
            f"{row['name']}, {row['backbone']}, batch {row['batch']}, {row['objects']} objects: "
            "step over its layers",
            row["step / layers"],
            at_most=STEP_LIMIT,
        )
        for row in table.to_dict("records")
    ]
    for name, rows in grown.groupby("name", sort=False):
        few, many = rows["MB"]
        targets.append(
            Target(f"{name}: MB, 2,000 objects over 10", many / few, at_most=MEMORY_LIMIT)
        )
    print(f"\nFigures and limits\n\n{judge(targets).to_string(index=False)}")


if __name__ == "__main__":
    main()
