"""Kernels of a running program: `from_triton` and `watch_triton`, with stand-ins and with Triton itself."""

import json
import os
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from paths import ROOT

import analyzer
from analyzer.cli.app import run
from analyzer.execution.binding.launch_file import load_launch_file
from analyzer.frontend.cuda_tools import find_tool
from analyzer.live.triton_arguments import describe_value, find_tensor_bytes, read_kernel_arguments
from analyzer.text.errors import UsageError

FOLDER = ROOT / "tests" / "wild" / "09-triton-cache"
TRITON_PYTHON = os.environ.get("WARPLENS_TRITON_PYTHON", "/tmp/tvenv/bin/python")
needs_tools = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="nvdisasm is not installed here")

Capture = pytest.CaptureFixture[str]


class Tensor:
    """A tensor of a GPU, whose storage goes on behind it."""

    dtype = "torch.float16"

    def __init__(self, n: int, *, address: int = 1 << 40, storage_bytes: int | None = None) -> None:
        self.n, self.address, self.storage_bytes = n, address, storage_bytes

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return 2

    def numel(self) -> int:
        return self.n

    def untyped_storage(self) -> Any:
        if self.storage_bytes is None:
            raise NotImplementedError
        return SimpleNamespace(nbytes=lambda: self.storage_bytes)

    def storage_offset(self) -> int:
        return 8


NAMES = ("x", "y", "n", "x_stride", "factor", "y_stride", "bias", "BLOCK", "ROUND")


def make_source(**constants: object) -> Any:
    """What `CompiledKernel.src` of the kernel in tests/wild/09-triton-cache would be."""
    constants = {"y_stride": 1, "bias": None, "BLOCK": 512, "ROUND": True, **constants}
    parameters = [SimpleNamespace(is_constexpr=name in ("BLOCK", "ROUND")) for name in NAMES]
    types = dict(zip(NAMES, ("*fp32", "*fp32", "i32", "i32", "fp32"), strict=False))
    return SimpleNamespace(
        fn=SimpleNamespace(arg_names=list(NAMES), params=parameters, launch_metadata=None),
        signature={name: types.get(name, "constexpr") for name in NAMES},
        constants={(NAMES.index(name),): value for name, value in constants.items()},
    )


@pytest.fixture
def kernel() -> Any:
    """The kernel of tests/wild/09-triton-cache as Triton's `CompiledKernel` has it."""
    content = json.loads((FOLDER / "scale_rows.json").read_text())
    metadata = namedtuple("KernelMetadata", sorted(content))(**content)
    asm = {
        "cubin": (FOLDER / "scale_rows.cubin").read_bytes(),
        "ttir": (FOLDER / "scale_rows.ttir").read_text(),
    }
    return SimpleNamespace(
        asm=asm, metadata=metadata, src=make_source(), name="scale_rows", hash=content["hash"]
    )


def test_arguments_are_bound_as_triton_binds_them() -> None:
    arguments = read_kernel_arguments(make_source())
    wanted = {"x": 1, "y": 2, "n": 3, "x_stride": 4, "factor": 5}
    assert arguments.bind((1, 2, 3, 4, 5)) == wanted
    assert arguments.bind((1, 2, 3, 4, 5, 1, None)) == wanted
    assert arguments.bind((1, 2, 3, 4, 5, 1, None, 512, True)) == wanted
    assert arguments.bind({"n": 3, "BLOCK": 512}) == {"n": 3}
    for values, says in (
        ((1, 2, 3), "3 arguments for a kernel of 9, 5 without the constants"),
        ({"m": 3}, "no argument m"),
        ({"BLOCK": 256}, "compiled for 512"),
    ):
        with pytest.raises(UsageError, match=says):
            arguments.bind(values)
    assert read_kernel_arguments(None).bind((7,)) == {"0": 7}


def test_values_in_a_launch_file() -> None:
    assert describe_value(Tensor(100)) == "ptr:200"
    assert describe_value(Tensor(100, storage_bytes=4096)) == f"ptr:{4096 - 16}"
    assert describe_value(Tensor(0)) == "ptr"
    assert describe_value(None) == "null"
    assert [describe_value(value) for value in (True, 7, 1.5, float("nan"), np.int32(3))] == [
        1,
        7,
        1.5,
        "nan",
        3,
    ]
    assert describe_value(print) is None
    base = Tensor(1 << 20)
    descriptor = SimpleNamespace(base=base, shape=[512, 2048], strides=[2048, 1], block_shape=[128, 64])
    assert describe_value(descriptor) == "tensormap:f16:2048x512:64x128:4096"
    assert find_tensor_bytes(object()) is None


@needs_tools
def test_a_compiled_kernel_is_analyzed_as_its_cache_is(kernel: Any, capsys: Capture) -> None:
    tensor = Tensor(64 * 512)
    report = analyzer.from_triton(kernel, 64, (tensor, tensor, 500, 512, 2.0, 1, None), gpu="h100")
    options = ["--grid", "64", "--arg", "n=500", "--arg", "x_stride=512", "--arg", "factor=2.0", "-g", "h100"]
    options += ["--arg", f"x=ptr:{64 * 1024}", "--arg", f"y=ptr:{64 * 1024}"]
    assert run(["analyze", str(FOLDER / "scale_rows.cubin"), *options, "--format", "json"]) == 0
    (cached,) = json.loads(capsys.readouterr().out)["kernels"]
    (entry,) = report.kernels
    assert entry.input == "scale_rows (Triton)"
    assert [p.cycles for p in entry.predictions] == [p["cycles"] for p in cached["predictions"]]
    assert entry.launch.arguments == cached["launch"]["arguments"]
    called: list[dict[str, object]] = []

    def grid(meta: dict[str, object]) -> tuple[int, ...]:
        called.append(meta)
        return (64,)

    again = analyzer.from_triton(kernel, grid, {"n": 500}, "h100")
    assert called == [{"y_stride": 1, "bias": None, "BLOCK": 512, "ROUND": True, "n": 500}]
    assert again.kernels[0].launch.grid == (64, 1, 1)


def test_what_is_no_compiled_kernel_is_refused(kernel: Any) -> None:
    with pytest.raises(UsageError, match="neither a cubin nor PTX"):
        analyzer.from_triton(object(), 1)
    kernel.metadata = None
    with pytest.raises(UsageError, match="no metadata"):
        analyzer.from_triton(kernel, 1)


class LazyDict:
    """As `triton.compiler.compiler.LazyDict`."""

    def __init__(self, data: dict[str, object]) -> None:
        self.data = data
        self.extras: list[tuple[object, tuple[object, ...]]] = []

    def add(self, func: object, args: tuple[object, ...]) -> None:
        self.extras.append((func, args))


class HookChain:
    """As `triton.knobs.HookChain`, of Triton 3.5."""

    def __init__(self) -> None:
        self.calls: list[Callable[..., object]] = []
        self.add, self.remove = self.calls.append, self.calls.remove

    def __call__(self, *args: object) -> None:
        for call in self.calls:
            call(*args)


def make_triton(*, chain: bool, knobs: bool) -> ModuleType:
    """A stand-in for Triton: with chains of hooks (3.5 on), hooks in knobs (3.4), or in the class (before)."""

    class CompiledKernel:
        launch_enter_hook: Any = None

        def __init__(self, source: Any, metadata: Any) -> None:
            self.src, self.metadata, self.hash = source, metadata, metadata["hash"]

        def launch_metadata(self, grid: object, stream: object, *args: object) -> LazyDict:
            return LazyDict({"name": self.metadata["name"], "function": 1, "stream": stream})

    triton: Any = ModuleType("triton")
    triton.compiler = SimpleNamespace(CompiledKernel=CompiledKernel)
    if knobs:
        hook = HookChain() if chain else None
        triton.knobs = SimpleNamespace(
            runtime=SimpleNamespace(launch_enter_hook=hook, jit_post_compile_hook=None)
        )
        del CompiledKernel.launch_enter_hook
    found: ModuleType = triton
    return found


@pytest.fixture(params=[(True, True), (False, True), (False, False)], ids=["3.5", "3.4", "3.2"])
def triton(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-ins for three versions of Triton, in place of any that is installed."""
    module: Any = make_triton(chain=request.param[0], knobs=request.param[1])
    monkeypatch.setitem(sys.modules, "triton", module)
    module.holder = module.knobs.runtime if request.param[1] else module.compiler.CompiledKernel
    return module


METADATA = {"name": "scale_rows", "hash": "ab" * 32, "num_warps": 4, "shared": 512, "num_ctas": 2}
ARGUMENTS = (Tensor(100, address=48), Tensor(8), 500, 512, 2.0, 1, None, 512, True)


def test_launches_of_each_version_are_recorded(triton: Any, tmp_path: Path) -> None:
    path = tmp_path / "launches.json"
    seen: list[object] = []
    if not isinstance(triton.holder.launch_enter_hook, HookChain):
        triton.holder.launch_enter_hook = staticmethod(seen.append)
    before = triton.holder.launch_enter_hook
    kernel = triton.compiler.CompiledKernel(make_source(), METADATA)
    watch = analyzer.watch_triton(path).enable()
    for grid in ((4, 2), (4, 2), (5,)):
        triton.holder.launch_enter_hook(kernel.launch_metadata(grid, 0, *ARGUMENTS))
    watch.disable()
    triton.holder.launch_enter_hook(kernel.launch_metadata((6,), 0, *ARGUMENTS))
    assert triton.holder.launch_enter_hook == before
    assert len(seen) == (0 if isinstance(before, HookChain) else 4)
    assert (watch.n_launches, watch.n_distinct, watch.n_lost) == (3, 2, 0)
    kernels = json.loads(path.read_text())["kernels"]
    assert list(kernels) == ["scale_rows@" + "ab" * 8]
    first, second = kernels["scale_rows@" + "ab" * 8]
    assert first["arguments"] == {"x": "ptr:200", "y": "ptr:16", "n": 500, "x_stride": 512, "factor": 2.0}
    assert (first["grid"], first["cluster"], first["dynamic_shared_bytes"]) == ([8, 2], [2], 512)
    assert first["recorded"]["alignments"] == {"x": 16, "y": 256}
    assert (first["recorded"]["count"], second["recorded"]["count"]) == (2, 1)
    assert first["recorded"]["num_warps"] == 4


def test_a_kernel_with_launch_metadata_of_its_author(triton: Any, tmp_path: Path) -> None:
    with analyzer.watch_triton(tmp_path / "launches.json") as watch:
        found = LazyDict({"name": "k"})
        found.add(print, ((3,), {"name": "k", "num_warps": 8}, {"x": Tensor(4), "n": 4, "B": 128}))
        function = SimpleNamespace(params=[SimpleNamespace(name="B", is_constexpr=True)])
        if hasattr(triton.holder, "jit_post_compile_hook"):
            hook = triton.holder.jit_post_compile_hook
            assert (
                hook(key="", repr="", fn=SimpleNamespace(name="k", jit_function=function), compile={}) is None
            )
        triton.holder.launch_enter_hook(found)
    assert watch.n_lost == 0
    ((name, (entry,)),) = json.loads((tmp_path / "launches.json").read_text())["kernels"].items()
    assert (name, entry["grid"]) == ("k", [3])
    assert entry["arguments"]["n"] == 4
    assert triton.holder.launch_enter_hook is None or not getattr(
        triton.holder.launch_enter_hook, "calls", ()
    )


def test_nothing_of_the_program_fails(triton: Any, tmp_path: Path) -> None:
    watch = analyzer.watch_triton(tmp_path / "missing" / "launches.json")
    watch.enable().enable()
    for odd in (None, object(), LazyDict({}), LazyDict({"name": "k"})):
        triton.holder.launch_enter_hook(odd)
    assert (watch.n_launches, watch.n_distinct, watch.n_lost) == (4, 1, 3)
    with pytest.raises(UsageError, match="No such file"):
        watch.disable()


@needs_tools
@pytest.mark.usefixtures("triton")
def test_analyze_reads_the_file(tmp_path: Path, capsys: Capture) -> None:
    triton: Any = sys.modules["triton"]
    content = json.loads((FOLDER / "scale_rows.json").read_text())
    path = tmp_path / "launches.json"
    with analyzer.watch_triton(path):
        for kernel_hash, grid in (("00" * 32, 3), (content["hash"], 64)):
            details = {**METADATA, "hash": kernel_hash, "num_ctas": 1, "shared": 0}
            kernel = triton.compiler.CompiledKernel(make_source(), details)
            triton.holder.launch_enter_hook(kernel.launch_metadata((grid,), 0, *ARGUMENTS))
    command = ["analyze", str(FOLDER / "scale_rows.cubin"), "--launch", str(path), "--format", "json"]
    assert run(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [kernel["launch"]["grid"] for kernel in found["kernels"]] == [[64, 1, 1]]
    assert found["kernels"][0]["launch"]["arguments"]["n"] == "500"


def test_a_program_without_triton_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(UsageError, match="cannot be imported"):
        analyzer.watch_triton(tmp_path / "launches.json").enable()


@needs_tools
@pytest.mark.skipif(not os.access(TRITON_PYTHON, os.X_OK), reason="no Python that has Triton")
def test_triton_itself(tmp_path: Path) -> None:
    path = tmp_path / "launches.json"
    packages = Path(np.__file__).parent.parent
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(packages))),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [TRITON_PYTHON, str(Path(__file__).with_name("real_triton.py")), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    if "No module named 'triton'" in done.stderr:
        pytest.skip("that Python has no Triton")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["seen"] == [4, 2, 1]
    assert answer["others"] == ["scale", "scale", "scale", ""]
    assert answer["undone"]
    assert answer["grid"] == [4, 1, 1]
    assert answer["arguments"] == {"x": "ptr:4000", "out": "ptr:4000", "n": "1000", "factor": "2.0"}
    ((name, (first, second)),) = json.loads(path.read_text())["kernels"].items()
    assert name == f"scale@{answer['hash'][:16]}"
    assert (first["grid"], first["recorded"]["count"], second["arguments"]["n"]) == ([4], 2, 900)
    assert first["recorded"]["alignments"] == {"x": 32, "out": 32}


def test_a_program_of_many_launches_makes_a_file_that_is_read(triton: Any, tmp_path: Path) -> None:
    path = tmp_path / "launches.json"
    with analyzer.watch_triton(path) as watch:
        for number in range(60):
            kernel = triton.compiler.CompiledKernel(make_source(), {**METADATA, "name": f"k{number}"})
            for grid in range(1, 1_200 if number == 7 else 3):
                triton.holder.launch_enter_hook(kernel.launch_metadata((grid,), 0, *ARGUMENTS))
    assert (watch.n_distinct, watch.n_lost) == (59 * 2 + 1_000, 199)
    table = load_launch_file(path)
    assert len(table.find_launches("k7")) == 1_000
    assert [launch.grid.x for launch in table.find_launches("k8") if launch.grid] == [2, 4]
