"""The GPU of this machine, through PyTorch and Triton, as a device to profile on.

Times are taken as Triton's `do_bench` takes them: events around each launch, the L2 cache cleared before it,
the median; but with the numbers of launches of WaveTune (3 to warm up, 5 measured), for `do_bench` is given
milliseconds, not launches. Torch and Triton are imported here alone, when a device is opened.
"""

import importlib
import math
import statistics
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from analyzer.text.errors import ToolError, UsageError
from analyzer.text.optional_packages import PROFILING, check_packages
from analyzer.tuning.device_names import find_gpu_of_device
from analyzer.tuning.profiling import ITERATIONS, WARMUPS, ConfigurationFailed, DeviceLost

Launch = Callable[[], object]

_HEAD_DIM = 128
_GEMM_GROUP = 8  # tile rows that share weights in the L2; no parameter of the dense kernel's space
_LOST = ("illegal memory access", "unspecified launch failure", "device-side assert", "context is destroyed")
_CACHED_INPUTS = 4  # tensors of so many shapes are kept: consecutive rows of a plan are of one shape


class TritonDevice:
    """Times the Triton kernels of `analyzer.tuning.triton_kernels` in bfloat16."""

    def __init__(
        self, warmups: int = WARMUPS, iterations: int = ITERATIONS, *, clears_cache: bool = True
    ) -> None:
        """Open the current GPU. Raises ToolError where there is none, or no PyTorch or Triton."""
        self._torch, self._triton = _import_torch_and_triton()
        self._warmups, self._iterations, self._clears_cache = warmups, iterations, clears_cache
        self._name = str(self._torch.cuda.get_device_name())
        self._make_inputs = lru_cache(_CACHED_INPUTS)(self._allocate_inputs)

    @property
    def gpu(self) -> str:
        """Key of the GPU in the database, or its own name."""
        return find_gpu_of_device(self._name) or self._name

    def measure_us(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> float:
        """Return the median time of a launch in us."""
        try:
            launch = self._make_launch(kernel, shape, config)
            return self._time_us(launch)
        except self._torch.cuda.OutOfMemoryError:
            self._make_inputs.cache_clear()
            self._torch.cuda.empty_cache()
            raise ConfigurationFailed("tensors do not fit the GPU's memory") from None
        except Exception as error:
            raise describe_failure(error) from error

    def _make_launch(self, kernel: str, shape: Mapping[str, int], config: Mapping[str, int]) -> Launch:
        makers = {
            "gemm": self._launch_gemm,
            "grouped_gemm": self._launch_grouped_gemm,
            "flash_attention": self._launch_attention,
        }
        if kernel not in makers:
            raise UsageError(f"no Triton kernel to run for {kernel}", hint=f"one of: {', '.join(makers)}")
        return makers[kernel](shape, config)

    def _launch_gemm(self, shape: Mapping[str, int], config: Mapping[str, int]) -> Launch:
        m, n, k = shape["m"], shape["n"], shape["k"]
        a, b, c = self._make_inputs(((m, k), (n, k), (m, n)))
        grid = (_divide_up(m, config["BLOCK_SIZE_M"]) * _divide_up(n, config["BLOCK_SIZE_N"]),)
        bound = _load_kernel("gemm")[grid]
        return lambda: bound(a, b, c, m, n, k, k, k, n, GROUP_SIZE_M=_GEMM_GROUP, **config)

    def _launch_grouped_gemm(self, shape: Mapping[str, int], config: Mapping[str, int]) -> Launch:
        m, experts, topk, n, k = (shape[name] for name in ("m", "experts", "topk", "n", "k"))
        block, n_slots = config["BLOCK_SIZE_M"], m * topk
        a, b, c = self._make_inputs(((m, k), (experts, n, k), (n_slots, n)))
        slots, block_experts = route_evenly(n_slots, experts, block)
        integers = {"dtype": self._torch.int32, "device": "cuda"}
        routing = [self._torch.tensor(each, **integers) for each in (slots, block_experts, [len(slots)])]
        grid = (len(block_experts) * _divide_up(n, config["BLOCK_SIZE_N"]),)
        bound = _load_kernel("fused_moe")[grid]
        even = k % config["BLOCK_SIZE_K"] == 0
        return lambda: bound(
            a, b, c, *routing, n, k, n_slots, k, n * k, k, n, TOP_K=topk, EVEN_K=even, **config
        )

    def _launch_attention(self, shape: Mapping[str, int], config: Mapping[str, int]) -> Launch:
        batch, heads, queries, keys = (shape[x] for x in ("batch", "heads", "q_length", "kv_length"))
        rows, columns = (batch, heads, queries, _HEAD_DIM), (batch, heads, keys, _HEAD_DIM)
        q, k, v, out = self._make_inputs((rows, columns, columns, rows))
        scale = math.log2(math.e) / math.sqrt(_HEAD_DIM)
        bound = _load_kernel("flash_attention")[(_divide_up(queries, config["BLOCK_M"]), batch * heads)]
        return lambda: bound(q, k, v, out, queries, keys, scale, HEAD_DIM=_HEAD_DIM, **config)

    def _allocate_inputs(self, shapes: tuple[tuple[int, ...], ...]) -> list[Any]:
        """Return tensors of normal values; zeros would draw less power, and the clock would be higher."""
        options = {"dtype": self._torch.bfloat16, "device": "cuda"}
        return [self._torch.randn(shape, **options) for shape in shapes]

    def _time_us(self, launch: Launch) -> float:
        cuda, driver = self._torch.cuda, self._triton.runtime.driver.active
        cache = driver.get_empty_cache_for_benchmark() if self._clears_cache else None
        for _ in range(self._warmups):
            launch()
        cuda.synchronize()
        pairs = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self._iterations)]
        for start, end in pairs:
            if cache is not None:
                cache.zero_()
            start.record()
            launch()
            end.record()
        cuda.synchronize()
        return statistics.median(1e3 * float(start.elapsed_time(end)) for start, end in pairs)


def route_evenly(n_slots: int, experts: int, block: int) -> tuple[list[int], list[int]]:
    """Return the slots sorted by expert and padded to blocks, and the expert of each block.

    Slot f goes to expert f mod `experts`, as the tuners of the engines deal them out; padding is n_slots.
    """
    slots: list[int] = []
    block_experts: list[int] = []
    for expert in range(min(experts, n_slots)):
        own = range(expert, n_slots, experts)
        blocks = _divide_up(len(own), block)
        slots.extend(own)
        slots.extend([n_slots] * (blocks * block - len(own)))
        block_experts.extend([expert] * blocks)
    return slots, block_experts


def describe_failure(error: Exception) -> Exception:
    """Return what a failed launch means: ConfigurationFailed, DeviceLost, or the error itself.

    Triton's `OutOfResources` names the resource; other errors of the compiler or driver are of this
    configuration alone unless they end the GPU's context.
    """
    if isinstance(error, UsageError):
        return error
    text = str(error)
    if any(words in text for words in _LOST):
        return DeviceLost(text)
    kind = type(error).__name__
    if kind == "OutOfResources":
        return ConfigurationFailed(str(getattr(error, "name", "") or text))
    if kind in ("PTXASError", "CompilationError", "RuntimeError", "AssertionError", "ValueError"):
        return ConfigurationFailed(f"{kind}: {text}")
    return error


def _load_kernel(name: str) -> Any:
    return getattr(importlib.import_module(f"analyzer.tuning.triton_kernels.{name}"), name)


def _import_torch_and_triton() -> tuple[Any, Any]:
    """Return both modules. Raises ToolError where one is missing or there is no GPU."""
    check_packages("profiling", PROFILING)
    modules = [importlib.import_module(name) for name in PROFILING.modules]
    if not modules[0].cuda.is_available():
        raise ToolError(
            "profiling needs a GPU, and PyTorch finds none",
            hint="run it on the machine with the GPU; `tune rank` needs no profile",
        )
    return modules[0], modules[1]


def _divide_up(size: int, tile: int) -> int:
    return -(-size // tile)
