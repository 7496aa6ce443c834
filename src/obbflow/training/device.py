"""Where training computes and in which precision: looked up once, decided without side effects."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError

logger = logging.getLogger(__name__)

_NATIVE_BF16 = (8, 0)  # compute capability from which bf16 runs in hardware
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class CudaDevice:
    """One visible CUDA device."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Hardware:
    """What this process can compute on.

    Attributes:
        cpus: Cores that this process may keep busy.
        cuda: Devices that run a kernel now, in index order.
        cuda_problem: Why ``cuda`` is empty, None when it is not.
    """

    cpus: int
    cuda: tuple[CudaDevice, ...] = ()
    cuda_problem: str | None = None


@dataclass(frozen=True)
class Runtime:
    """Device, precision and memory layout of a run.

    Attributes:
        device: Where model and batches live.
        autocast_dtype: Type of mixed precision; None computes in float32.
        channels_last: Whether convolutions use the channels-last layout.
        threads: Of torch on the CPU; None leaves torch's own choice.
        notes: What the user should know about these choices, one line each.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    autocast_dtype: torch.dtype | None = None
    channels_last: bool = False
    threads: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def precision(self) -> str:
        """``32-true``, ``bf16-mixed`` or ``16-mixed``."""
        names = {None: "32-true", torch.bfloat16: "bf16-mixed", torch.float16: "16-mixed"}
        return names[self.autocast_dtype]

    def autocast(self) -> torch.autocast:
        """Return the context in which a forward pass runs."""
        return torch.autocast(
            self.device.type,
            dtype=self.autocast_dtype or torch.bfloat16,
            enabled=self.autocast_dtype is not None,
        )

    def make_scaler(self) -> torch.amp.GradScaler | None:
        """Return a gradient scaler for fp16, None in precisions that need none."""
        if self.autocast_dtype is not torch.float16:
            return None
        return torch.amp.GradScaler(self.device.type)

    def place(self, model: nn.Module) -> nn.Module:
        """Move ``model`` to the device and into the memory layout, and return it."""
        if self.channels_last:
            model.to(memory_format=torch.channels_last)
        return model.to(self.device)


def detect_hardware() -> Hardware:
    """Return what can run now; a CUDA build of torch without a working device counts as CPU."""
    cpus = _usable_cpus()
    if not torch.cuda.is_available():
        built = "no device is visible" if torch.version.cuda else "torch is built without CUDA"
        return Hardware(cpus, cuda_problem=built)
    try:
        torch.zeros(1, device="cuda").add_(1).item()
    except RuntimeError as error:  # a driver or a kernel image that does not fit
        return Hardware(cpus, cuda_problem=str(error).splitlines()[0])
    devices = [
        CudaDevice(torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index))
        for index in range(torch.cuda.device_count())
    ]
    return Hardware(cpus, tuple(devices))


def resolve_runtime(training: TrainingSection, hardware: Hardware) -> Runtime:
    """Return device and precision for ``training`` on ``hardware``; nothing is touched.

    Args:
        training: ``accelerator``, ``use_amp``, ``amp_dtype`` and ``channels_last`` decide.
        hardware: From ``detect_hardware``, or described by hand.

    Raises:
        ConfigError: If CUDA is asked for and no device can run.
    """
    if training.accelerator == "cuda" and not hardware.cuda:
        raise ConfigError(
            f"training.accelerator: 'cuda' was asked for, but {hardware.cuda_problem}. There is: "
            f"cpu ({hardware.cpus} cores). Set training.accelerator to cpu or auto, or repair the "
            "CUDA installation."
        )
    on_cuda = bool(hardware.cuda) and training.accelerator != "cpu"
    dtype, notes = _mixed_precision(training, hardware, on_cuda=on_cuda)
    return Runtime(
        device=torch.device("cuda", 0) if on_cuda else torch.device("cpu"),
        autocast_dtype=dtype,
        channels_last=training.channels_last,
        threads=None if "OMP_NUM_THREADS" in os.environ else hardware.cpus,
        notes=notes,
    )


def _mixed_precision(
    training: TrainingSection, hardware: Hardware, *, on_cuda: bool
) -> tuple[torch.dtype | None, tuple[str, ...]]:
    """Return the autocast type and what there is to say about it."""
    if not on_cuda:
        return None, ()
    if not training.use_amp:
        if training.amp_dtype == "auto":
            return None, ()
        note = f"training.amp_dtype {training.amp_dtype!r} has no effect: use_amp is false"
        return None, (note,)
    native = hardware.cuda[0].capability >= _NATIVE_BF16
    if training.amp_dtype == "bf16" and not native:
        note = (
            f"{hardware.cuda[0].name} only emulates bf16, which is slow: set training.amp_dtype "
            "to fp16 or auto"
        )
        return torch.bfloat16, (note,)
    if training.amp_dtype == "fp16" or not native:
        return torch.float16, ()
    return torch.bfloat16, ()


@contextmanager
def torch_settings(runtime: Runtime, *, deterministic: bool) -> Iterator[None]:
    """Apply torch's global settings for a run, and put the caller's back afterwards.

    Args:
        runtime: Its thread count is applied; never more than torch's own choice.
        deterministic: Use deterministic kernels where they exist; torch warns once about each
            operation that has none.
    """
    threads = torch.get_num_threads()
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    debug_mode = torch.get_deterministic_debug_mode()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS refuses without it
    try:
        if runtime.threads is not None:
            torch.set_num_threads(min(threads, runtime.threads))
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cudnn.deterministic = deterministic
        torch.set_deterministic_debug_mode("warn" if deterministic else "default")
        yield
    finally:
        torch.set_num_threads(threads)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = cudnn
        torch.set_deterministic_debug_mode(debug_mode)


def _usable_cpus() -> int:
    """Return the cores of this process; a container's quota counts, which torch overlooks."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    if not _CGROUP_QUOTA.is_file():
        return cpus
    quota, period = _CGROUP_QUOTA.read_text(encoding="ascii").split()
    return cpus if quota == "max" else max(1, min(cpus, int(quota) // int(period)))
