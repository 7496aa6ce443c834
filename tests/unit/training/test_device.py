import pytest
import torch

from obbflow.config import TrainingSection
from obbflow.errors import ConfigError
from obbflow.training.device import (
    CudaDevice,
    Hardware,
    Runtime,
    detect_hardware,
    resolve_runtime,
    torch_settings,
)

CPU = Hardware(cpus=2, cuda_problem="no device is visible")
A100 = Hardware(cpus=8, cuda=(CudaDevice("A100", (8, 0)),))
T4 = Hardware(cpus=8, cuda=(CudaDevice("T4", (7, 5)),))


@pytest.mark.parametrize(
    ("values", "hardware", "device", "precision", "notes"),
    [
        ({}, CPU, "cpu", "32-true", 0),
        ({"accelerator": "cpu"}, A100, "cpu", "32-true", 0),
        ({}, A100, "cuda:0", "bf16-mixed", 0),
        ({}, T4, "cuda:0", "16-mixed", 0),
        ({"amp_dtype": "fp16"}, A100, "cuda:0", "16-mixed", 0),
        ({"amp_dtype": "bf16"}, A100, "cuda:0", "bf16-mixed", 0),
        ({"amp_dtype": "bf16"}, T4, "cuda:0", "bf16-mixed", 1),
        ({"use_amp": False}, A100, "cuda:0", "32-true", 0),
        ({"use_amp": False, "amp_dtype": "fp16"}, A100, "cuda:0", "32-true", 1),
        ({"use_amp": False, "amp_dtype": "fp16"}, CPU, "cpu", "32-true", 0),
    ],
)
def test_device_and_precision_follow_the_table(values, hardware, device, precision, notes):
    runtime = resolve_runtime(TrainingSection(**values), hardware)
    assert str(runtime.device) == device
    assert runtime.precision == precision
    assert len(runtime.notes) == notes


def test_asking_for_an_absent_device_says_what_is_there():
    with pytest.raises(ConfigError, match=r"no device is visible\. There is: cpu \(2 cores\)"):
        resolve_runtime(TrainingSection(accelerator="cuda"), CPU)


def test_only_float16_needs_a_scaler():
    assert Runtime().make_scaler() is None
    assert Runtime(autocast_dtype=torch.bfloat16).make_scaler() is None


def test_settings_of_torch_are_put_back_even_after_an_error():
    threads = torch.get_num_threads()
    benchmark = torch.backends.cudnn.benchmark
    inside = {}

    def fail() -> None:
        with torch_settings(Runtime(threads=1), deterministic=True):
            inside["threads"] = torch.get_num_threads()
            inside["deterministic"] = torch.are_deterministic_algorithms_enabled()
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert inside == {"threads": 1, "deterministic": True}
    assert torch.get_num_threads() == threads
    assert torch.backends.cudnn.benchmark == benchmark
    assert not torch.are_deterministic_algorithms_enabled()


def test_more_threads_than_torch_chose_are_never_set():
    threads = torch.get_num_threads()
    with torch_settings(Runtime(threads=threads + 5), deterministic=False):
        assert torch.get_num_threads() == threads


def test_the_hardware_of_this_machine_can_be_used():
    hardware = detect_hardware()
    assert hardware.cpus >= 1
    assert (hardware.cuda_problem is None) == bool(hardware.cuda)
    resolve_runtime(TrainingSection(), hardware)


def test_channels_last_reaches_the_convolutions():
    model = Runtime(channels_last=True).place(torch.nn.Conv2d(4, 4, 3))
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
