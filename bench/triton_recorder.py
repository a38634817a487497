"""Compile Triton kernels as a library launches them, on a machine without a GPU, and keep what they became.

Importing torch and triton is this module's business alone; `triton_corpus.py` starts it in processes of its
own, with the Python of an environment that has both. Three things are put in place of the GPU:

- an active driver of Triton that names a target and launches nothing,
- `torch.cuda` functions that describe a GPU of that target, and tensors that say they are on it while they
  are in the memory of the host,
- `JITFunction.run`, which compiles, records the launch (grid and arguments) and does not launch; an autotuner
  takes the first of its configurations that fits shared memory.

The libraries' own Python code then chooses tile sizes, types and grids. Results of kernels are not computed:
what depends on them (a number of tokens read back) is chance, and a recipe that needs one computes it itself.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

KEPT = ("ttir", "ttgir", "ptx", "cubin")
_MAX_VARIANTS = 2  # of one kernel, compiled for one architecture
_SHARED_LIMIT_BYTES = {75: 65536, 80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
_N_SMS = {80: 108, 86: 84, 89: 128, 90: 132, 100: 148, 120: 170}
_SECONDS_PER_RECIPE = 150
_FACTORIES = (
    *("empty", "zeros", "ones", "full", "arange", "tensor", "rand", "randn", "randint", "linspace"),
    *("as_tensor", "empty_strided", "eye", "randperm", "logspace", "scalar_tensor", "asarray"),
)


class Recorder:
    """Write each new compiled kernel to FOLDER/PACKAGE/KERNEL/sm_X/, with its launch."""

    def __init__(self, folder: Path, package: str, arch: int) -> None:
        self._folder = folder
        self._package = package
        self._arch = arch

    def record(self, function: Any, kernel: Any, launch: dict[str, Any]) -> None:
        """Write the files of a kernel, unless the same or `_MAX_VARIANTS` others of its name are there."""
        if kernel is None or not hasattr(kernel, "asm"):
            return
        name = function.__name__.lstrip("_")
        digest = hashlib.sha1(str(kernel.asm["ptx"]).encode()).hexdigest()
        for variant in range(_MAX_VARIANTS):
            suffix = f"_v{variant + 1}" if variant else ""
            folder = self._folder / self._package / (name + suffix) / f"sm_{self._arch}"
            stamp = folder / "launch.json"
            if not stamp.exists():
                self._write(folder, kernel, {**launch, "ptx_sha1": digest})
                return
            if json.loads(stamp.read_text())["ptx_sha1"] == digest:
                return

    def _write(self, folder: Path, kernel: Any, launch: dict[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = str(kernel.metadata.name)[:120]
        for extension in KEPT:
            code = kernel.asm[extension]
            data = code if isinstance(code, bytes) else str(code).encode()
            (folder / f"{name}.{extension}").write_bytes(data)
        metadata = {key: value for key, value in kernel.metadata._asdict().items()}
        (folder / f"{name}.json").write_text(json.dumps(metadata, default=_to_json))
        (folder / "launch.json").write_text(json.dumps(launch, default=_to_json))


def _to_json(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") and vars(value) else str(value)


def describe_argument(value: Any) -> Any:
    """Return an argument as JSON has it: a tensor as type, shape, strides and bytes, numbers as they are."""
    if hasattr(value, "data_ptr"):
        storage = value.untyped_storage().nbytes() if hasattr(value, "untyped_storage") else 0
        return {
            "tensor": str(value.dtype),
            "shape": list(value.shape),
            "strides": list(value.stride()) if hasattr(value, "stride") else [],
            "bytes": storage,
        }
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def install(arch: int, recorder: Recorder) -> None:
    """Put driver, `torch.cuda` and launches in place."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    driver.set_active(_make_driver(GPUTarget("cuda", arch, 32), arch))
    _patch_torch(torch, arch)
    _patch_launches(triton, recorder, arch)


def _make_driver(target: Any, arch: int) -> Any:
    properties = {
        "max_shared_mem": _SHARED_LIMIT_BYTES[arch],
        "multiprocessor_count": _N_SMS.get(arch, 108),
        "max_num_regs": 65536,
        "warpSize": 32,
        "sm_clock_rate": 1_700_000,
        "mem_clock_rate": 1_500_000,
        "mem_bus_width": 5120,
    }
    import torch

    return SimpleNamespace(
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_current_stream=lambda device=0: 0,
        get_current_target=lambda: target,
        get_active_torch_device=lambda: torch.device("cuda", 0),
        get_device_interface=lambda: torch.cuda,
        get_device_capability=lambda device=0: divmod(arch, 10),
        get_benchmarker=lambda: lambda function, quantiles=None, **_: [1.0, 1.0, 1.0],
        get_empty_cache_for_benchmark=lambda: torch.empty(1),
        clear_cache=lambda cache: None,
        utils=SimpleNamespace(
            get_device_properties=lambda device=0: properties, load_binary=lambda *_: (0, 0, 0, 0, 1024)
        ),
        map_python_to_cpp_type=str,
    )


def _patch_torch(torch: Any, arch: int) -> None:
    properties = SimpleNamespace(
        name={90: "NVIDIA H100", 80: "NVIDIA A100", 100: "NVIDIA B200"}.get(arch, "NVIDIA RTX"),
        major=arch // 10,
        minor=arch % 10,
        multi_processor_count=_N_SMS.get(arch, 108),
        total_memory=80 << 30,
        shared_memory_per_block_optin=_SHARED_LIMIT_BYTES[arch],
        shared_memory_per_multiprocessor=_SHARED_LIMIT_BYTES[arch] + 1024,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        warp_size=32,
        L2_cache_size=50 << 20,
        gcnArchName="",
    )
    stream = SimpleNamespace(
        cuda_stream=0, synchronize=lambda: None, wait_stream=lambda s: None, wait_event=lambda e: None
    )
    replacements: dict[str, Any] = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: divmod(arch, 10),
        "get_device_properties": lambda device=None: properties,
        "get_device_name": lambda device=None: properties.name,
        "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": lambda device=None: contextlib.nullcontext(),
        "device_of": lambda tensor=None: contextlib.nullcontext(),
        "stream": lambda stream=None: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "is_bf16_supported": lambda including_emulation=True: True,
        "_lazy_init": lambda: None,
        "init": lambda: None,
    }
    for name, replacement in replacements.items():
        setattr(torch.cuda, name, replacement)
    torch.version.cuda = "13.0"
    torch.Tensor.is_cuda = property(lambda tensor: True)
    torch.Tensor.device = property(lambda tensor: torch.device("cuda", 0))
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    torch.Tensor.pin_memory = lambda tensor, *_, **__: tensor
    torch.Tensor.record_stream = lambda tensor, *_: None
    torch._C._cuda_getCurrentRawStream = lambda device=0: 0
    _keep_on_host(torch)


def _keep_on_host(torch: Any) -> None:
    """Let functions that take `device="cuda"` make tensors in the memory of the host.

    A torch function mode would do it in fewer lines, but is off inside a backward pass.
    """

    def on_host(value: Any) -> Any:
        is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
        return torch.device("cpu") if is_device else value

    def wrap(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = on_host(kwargs["device"])
            return function(*(on_host(argument) for argument in args), **kwargs)

        setattr(owner, name, functools.wraps(function)(call))

    for name in _FACTORIES:
        wrap(torch, name)
        if hasattr(torch, f"{name}_like"):
            wrap(torch, f"{name}_like")
        if hasattr(torch.Tensor, f"new_{name}"):
            wrap(torch.Tensor, f"new_{name}")
    wrap(torch.Tensor, "to")
    wrap(torch.nn.Module, "to")


def _patch_launches(triton: Any, recorder: Recorder, arch: int) -> None:
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    compile_only = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        args = tuple(_plain(value) for value in args)
        kwargs = {name: _plain(value) for name, value in kwargs.items()}
        try:
            kernel = compile_only(self, *args, grid=grid, warmup=True, **kwargs)
        except Exception as error:
            print(f"REFUSED {self.__name__}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)
            if not _is_fitting_problem(error):
                return None
            raise
        recorder.record(self, kernel, _describe_launch(self, args, kwargs, grid))
        return kernel

    def tune(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        configurations = list(self.prune_configs(kwargs))
        kernel = None
        for configuration in configurations[:4]:
            self.best_config = configuration
            if configuration.pre_hook is not None:
                configuration.pre_hook({**self.nargs, **kwargs, **configuration.all_kwargs()})
            kernel = self.fn.run(*args, **{**kwargs, **configuration.all_kwargs()})
            if kernel is not None and kernel.metadata.shared <= _SHARED_LIMIT_BYTES[arch]:
                break
        return kernel

    JITFunction.run = run
    Autotuner.run = tune


def _plain(value: Any) -> Any:
    return False if type(value).__name__ == "_Nothing" else value


def _is_fitting_problem(error: Exception) -> bool:
    return type(error).__name__ == "OutOfResources"


def _describe_launch(function: Any, args: Any, kwargs: Any, grid: Any) -> dict[str, Any]:
    names = [parameter.name for parameter in function.params]
    values = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
    for name, parameter in function.signature.parameters.items():
        if name not in values and parameter.default is not parameter.empty:
            values[name] = parameter.default
    try:
        dimensions = grid(values) if callable(grid) else grid
        shape = [int(n) for n in dimensions]
    except Exception:
        shape = []
    constants = [parameter.name for parameter in function.params if parameter.is_constexpr]
    return {
        "grid": shape,
        "arguments": {name: describe_argument(values.get(name)) for name in names},
        "constants": constants,
    }


def run_recipes(package: str, arch: int, folder: Path, only: str = "") -> None:
    """Run every recipe of a package, each in a process of its own, with a time limit."""
    install(arch, Recorder(folder, package, arch))
    recipes = importlib.import_module("triton_recipes").find_recipes(package)
    for name, recipe in recipes:
        if only and only not in name:
            continue
        child = os.fork()
        if child == 0:
            os._exit(_run_one(name, recipe))
        _, status = os.waitpid(child, 0)
        print(f"RECIPE {package} {name} sm_{arch}: status {status}", flush=True)


def _run_one(name: str, recipe: Callable[[], None]) -> int:
    signal.alarm(_SECONDS_PER_RECIPE)
    try:
        recipe()
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = "; ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        print(f"FAILED {name}: {type(error).__name__}: {str(error)[:300]!r} at {where}", flush=True)
        return 1
    return 0


def _iterate_arguments() -> Iterator[str]:
    yield from sys.argv[1:]


if __name__ == "__main__":
    package, arch, folder, *only = _iterate_arguments()
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    sys.path.insert(1, os.environ["TRITON_CORPUS_SOURCES"])
    run_recipes(package, int(arch), Path(folder), only[0] if only else "")
