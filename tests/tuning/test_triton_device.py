"""What of the device can be told without a GPU: routing, failures, and what is missing."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.text.errors import ToolError
from analyzer.tuning.profiling import ConfigurationFailed, DeviceLost
from analyzer.tuning.triton_device import TritonDevice, describe_failure, route_evenly


@given(n_slots=st.integers(1, 300), experts=st.integers(1, 40), block=st.sampled_from([16, 32, 64]))
def test_each_slot_is_routed_once_and_blocks_have_one_expert(n_slots: int, experts: int, block: int) -> None:
    slots, block_experts = route_evenly(n_slots, experts, block)
    assert len(slots) == len(block_experts) * block
    assert sorted(slot for slot in slots if slot < n_slots) == list(range(n_slots))
    for place, slot in enumerate(slots):
        assert slot == n_slots or slot % experts == block_experts[place // block]


class OutOfResources(Exception):
    """As Triton's: says what there is too little of."""

    name = "shared memory"


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (OutOfResources("out of resource"), ConfigurationFailed, "shared memory"),
        (RuntimeError("Triton Error [CUDA]: an illegal memory access"), DeviceLost, "illegal"),
        (RuntimeError("Triton Error [CUDA]: invalid argument"), ConfigurationFailed, "invalid argument"),
        (KeyError("m"), KeyError, "m"),
    ],
)
def test_failures_are_of_the_configuration_or_of_the_device(
    error: Exception, kind: type[Exception], text: str
) -> None:
    found = describe_failure(error)
    assert type(found) is kind
    assert text in str(found)


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_without_torch_or_triton_there_is_one_error(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in ("torch", "triton"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else ModuleType(name))
    with pytest.raises(ToolError, match=f"profiling needs {missing}"):
        TritonDevice()


def test_without_a_gpu_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(is_available=lambda: False)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    with pytest.raises(ToolError, match="PyTorch finds none"):
        TritonDevice()


class FakeEvent:
    """An event of a clock that the launches move on."""

    now_ms = 0.0

    def __init__(self, **_: object) -> None:
        self.at_ms = 0.0

    def record(self) -> None:
        self.at_ms = FakeEvent.now_ms

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at_ms - self.at_ms


class FakeTensor(SimpleNamespace):
    """Holds its shape."""


@pytest.fixture
def launches(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[str, tuple[int, ...], tuple[object, ...], dict[str, object]]]:
    """A machine whose kernels take 1, 2, 3, ... ms; what they are launched with is kept."""
    kept: list[tuple[str, tuple[int, ...], tuple[object, ...], dict[str, object]]] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, grid: tuple[int, ...]) -> object:
            def launch(*arguments: object, **options: object) -> None:
                kept.append((self.name, grid, arguments, options))
                FakeEvent.now_ms += len(kept)

            return launch

    torch, triton = ModuleType("torch"), ModuleType("triton")
    torch.bfloat16, torch.int32 = "bf16", "i32"  # type: ignore[attr-defined]
    torch.randn = lambda shape, **_: FakeTensor(shape=shape)  # type: ignore[attr-defined]
    torch.tensor = lambda data, **_: FakeTensor(shape=(len(data),), data=data)  # type: ignore[attr-defined]
    torch.cuda = SimpleNamespace(  # type: ignore[attr-defined]
        is_available=lambda: True, get_device_name=lambda: "NVIDIA H100 80GB HBM3", synchronize=lambda: None,
        Event=FakeEvent, OutOfMemoryError=MemoryError, empty_cache=lambda: None,
    )  # fmt: skip
    cache = SimpleNamespace(zero_=lambda: None)
    driver = SimpleNamespace(get_empty_cache_for_benchmark=lambda: cache)
    triton.runtime = SimpleNamespace(driver=SimpleNamespace(active=driver))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "triton", triton)
    real = importlib.import_module
    monkeypatch.setattr(
        importlib,
        "import_module",
        lambda name: (
            SimpleNamespace(**{name.rsplit(".", 1)[-1]: Kernel(name.rsplit(".", 1)[-1])})
            if ".triton_kernels." in name
            else real(name)
        ),
    )
    return kept


def test_three_launches_warm_up_and_the_median_of_five_counts(launches: list[tuple[object, ...]]) -> None:
    device = TritonDevice()
    config = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_warps": 4, "num_stages": 3}
    time_us = device.measure_us("gemm", {"m": 100, "n": 100, "k": 128}, config)
    assert len(launches) == 8
    assert time_us == pytest.approx(6000)  # the launches measured take 4, 5, 6, 7 and 8 ms
    name, grid, _, options = launches[0]
    assert (name, grid) == ("gemm", (2 * 4,))
    assert options == {"GROUP_SIZE_M": 8, **config}
    assert device.gpu == "h100-sxm"


def test_the_grids_of_the_other_kernels(launches: list[tuple[object, ...]]) -> None:
    device = TritonDevice(warmups=0, iterations=1)
    config = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}  # fmt: skip
    device.measure_us("grouped_gemm", {"m": 64, "experts": 8, "topk": 2, "n": 128, "k": 100}, config)
    name, grid, arguments, options = launches[0]
    assert (name, grid) == ("fused_moe", (8 * 2,))  # 16 slots for each expert: a block of rows each
    assert isinstance(arguments, tuple)
    assert isinstance(options, dict)
    assert options["EVEN_K"] is False
    device.measure_us(
        "flash_attention",
        {"batch": 2, "heads": 4, "q_length": 100, "kv_length": 100},
        {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 2},
    )
    assert launches[1][:2] == ("flash_attention", (2, 8))
