"""Hold models of compiled code against 480 measured rows through the production binaries that ran.

    python bench/production_rows.py [--model sm,hybrid] [--timing kernel] [--cache FOLDER]

The rows are SynPerf's own (`../shared/data/pipeweave/rows/rmsnorm.csv`, `silu.csv`: bf16, six GPUs); the
kernels are FlashInfer's in sgl-kernel's wheel. The first run downloads the wheel (0.5 GB), extracts the
kernels of each architecture and caches them outside this repository; without the wheel the command ends with
a message. Prints the mean and the median absolute error for each kernel and GPU, and by measured time.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, gcd
from pathlib import Path

import numpy as np
from markdown import render_table
from operator_data.gpu_keys import PIPEWEAVE

import analyzer
from analyzer.frontend.cuda_tools import CudaTool, find_tool, make_tool_environment
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer, Timing
from analyzer.models.interface import ModelInput
from analyzer.models.registry import find_model
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal, bind_to_gpu
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.pipeline.options import Options

ROOT = Path(__file__).resolve().parents[1]
ROWS = ROOT.parent / "shared" / "data" / "pipeweave" / "rows"
CACHE = Path.home() / ".cache" / "warplens" / "production"
WHEEL = "sgl-kernel==0.3.16.post5"
_LIBRARY = "sgl_kernel/sm90/common_ops.abi3.so"
# The code that each GPU runs: of the wheel's cubins the nearest one of its generation.
_ARCH_BY_GPU_ARCH = {
    "sm_80": "sm_80",
    "sm_86": "sm_80",
    "sm_89": "sm_89",
    "sm_90": "sm_90",
    "sm_100": "sm_100a",
    "sm_120": "sm_120a",
}
RMSNORM, SILU = "fused_add_rmsnorm", "silu_mul"
_NORM_STEM, _SILU_STEM = "norm21FusedAddRMSNormKernelILj", "act_and_mul_kernelI13__nv_bfloat16XadL_Z4siluIf"
_SHORT_US, _TINY_US = 50.0, 10.0
WARP_THREADS, MAX_THREADS, VECTOR_ELEMENTS = 32, 1024, 8


class MissingWheelError(Exception):
    """The wheel can be neither found in the cache nor downloaded."""


@dataclass(frozen=True, slots=True)
class ProductionRow:
    """A measured launch of one of the kernels."""

    kernel: str  # `fused_add_rmsnorm` or `silu_mul`
    gpu: str  # as `load_gpu` takes it
    seq: int  # CTAs of the grid
    dim: int  # bf16 elements of an input row
    time_us: float  # as a profiler sees the kernel, without the gap to the next one

    @property
    def shape_key(self) -> str:
        """Text that rows of one problem size share on all GPUs: they stay on one side of a split."""
        return f"{self.kernel} {self.seq}x{self.dim}"


def read_rows(folder: Path = ROWS) -> tuple[ProductionRow, ...]:
    """Return the rows of both kernels in the order of the files."""
    found = []
    for kernel, name in ((RMSNORM, "rmsnorm.csv"), (SILU, "silu.csv")):
        with (folder / name).open(newline="", encoding="utf-8") as file:
            found += [
                ProductionRow(
                    kernel,
                    PIPEWEAVE[line["gpu"]],
                    int(line["seq"]),
                    int(line["dim"]),
                    float(line["time_us"]),
                )
                for line in csv.DictReader(file)
            ]
    return tuple(found)


def fetch_cubins(cache: Path = CACHE) -> Path:
    """Return the folder of the kernels' cubins, downloading and extracting them where it is missing.

    Raises MissingWheelError.
    """
    folder = cache / WHEEL.replace("==", "-")
    if not folder.exists():
        tool = find_tool("cuobjdump")
        if tool is None:
            raise MissingWheelError("cuobjdump is not found: it takes the cubins out of the wheel's library")
        with tempfile.TemporaryDirectory() as name:
            library = _download_library(Path(name))
            kept = list(_extract_cubins(tool, library))
            folder.mkdir(parents=True)
            for path in kept:
                path.rename(folder / path.name) if path.stat().st_dev == folder.stat().st_dev else (
                    folder / path.name
                ).write_bytes(path.read_bytes())
    return folder


def _download_library(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise MissingWheelError(f"pip cannot download {WHEEL}: {done.stderr.strip()}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(_LIBRARY, folder))


def _extract_cubins(tool: CudaTool, library: Path) -> Iterator[Path]:
    """Yield the cubins of a library that hold one of the kernels."""
    subprocess.run(
        [tool.path, "-xelf", "all", str(library)],
        cwd=library.parent,
        env=make_tool_environment(tool),
        capture_output=True,
        check=True,
    )
    names = (_NORM_STEM.encode(), _SILU_STEM.encode())
    for path in sorted(library.parent.glob("*.cubin")):
        content = path.read_bytes()
        if any(name in content for name in names):
            yield path


class ProductionKernels:
    """The kernels of the wheel, read where they are first asked for; counts are kept for all GPUs."""

    def __init__(self, cache: Path = CACHE, timing: Timing = Timing.KERNEL) -> None:
        """Find the cubins. Raises MissingWheelError."""
        self._timing = timing
        self._folder = fetch_cubins(cache)
        self._kernels: dict[tuple[str, str], LoadedKernel] = {}
        self._counted: dict[tuple[str, str], CountedLaunch] = {}

    def bind(self, row: ProductionRow) -> ModelInput:
        """Return what models read of a row's launch on its GPU."""
        gpu = load_gpu(row.gpu)
        arch = _ARCH_BY_GPU_ARCH[gpu.file.arch]
        key = (row.shape_key, arch)
        if key not in self._counted:
            loaded = self._load_kernel(_find_symbol(row), arch)
            (self._counted[key],) = KernelAnalyzer(
                Options(launch=make_launch(row, self._timing))
            ).count_launches(loaded)
        bound = bind_to_gpu(self._counted[key], gpu)
        if isinstance(bound, Refusal):
            raise TypeError(f"{row.kernel} on {row.gpu}: {bound.reason}")
        return bound

    def _load_kernel(self, symbol: str, arch: str) -> LoadedKernel:
        if (symbol, arch) not in self._kernels:
            for path in sorted(self._folder.glob(f"*.{arch}.cubin")):
                if symbol.encode() in path.read_bytes():
                    self._kernels[symbol, arch] = analyzer.load(str(path))[symbol]
                    break
        return self._kernels[symbol, arch]


def _find_symbol(row: ProductionRow) -> str:
    """Return a part of the mangled name that only the row's kernel has."""
    if row.kernel == SILU:
        return _SILU_STEM
    return f"{_NORM_STEM}{gcd(VECTOR_ELEMENTS, row.dim)}E13__nv_bfloat16"


def make_launch(row: ProductionRow, timing: Timing = Timing.KERNEL) -> Launch:
    """Return the launch of a row, as FlashInfer's host code makes it."""
    if row.kernel == SILU:
        values: tuple[ArgumentValue, ...] = (Pointer(), Pointer(), row.dim // 2)
        return Launch(
            grid=Dim3(row.seq),
            block=Dim3(min(row.dim // (2 * VECTOR_ELEMENTS), MAX_THREADS)),
            arguments=_number(values),
            timing=timing,
        )
    threads = min(MAX_THREADS, row.dim // gcd(VECTOR_ELEMENTS, row.dim))
    warps = ceil(threads / WARP_THREADS)
    pointers = (Pointer(), Pointer(), Pointer())  # input, residual, weight
    return Launch(
        grid=Dim3(row.seq),
        block=Dim3(WARP_THREADS, warps),
        dynamic_shared_bytes=4 * (ceil(warps / 4) * 4 + row.dim),
        arguments=_number((*pointers, row.dim, row.dim, row.dim, 0.0, 1e-6)),
        timing=timing,
    )


def _number(values: Sequence[ArgumentValue]) -> tuple[Argument, ...]:
    return tuple(Argument(which, value) for which, value in enumerate(values))


@dataclass(frozen=True, slots=True)
class RowError:
    """A row with the predictions of one model."""

    row: ProductionRow
    model: str
    predicted_us: float
    is_inside: bool  # the measured time lies in the predicted interval

    @property
    def error(self) -> float:
        """Predicted over measured time, less one."""
        return self.predicted_us / self.row.time_us - 1.0


def predict_rows(
    rows: Iterable[ProductionRow], models: Sequence[str], kernels: ProductionKernels
) -> Iterator[RowError]:
    """Yield the prediction of each model for each row."""
    for row in rows:
        model_input = kernels.bind(row)
        for model in models:
            found = find_model(model)(model_input).prediction
            is_inside = found.time_us_low <= row.time_us <= found.time_us_high
            yield RowError(row, model, found.time_us, is_inside)


_COLUMNS = ("kernel", "GPU", "model", "rows", "mean", "median", "P90", "bias", "inside")


def make_score_cells(kernel: str, group: str, model: str, errors: Sequence[RowError]) -> tuple[str, ...]:
    """Return a line of the table: errors in %, bias as the median of predicted over measured time."""
    found = np.array([one.error for one in errors])
    size = np.abs(found)
    return (
        *(kernel, group, model, str(len(errors)), f"{size.mean():.1%}", f"{np.median(size):.1%}"),
        *(f"{np.quantile(size, 0.9):.1%}", f"{1.0 + np.median(found):.2f}"),
        f"{np.mean([one.is_inside for one in errors]):.0%}",
    )


def render_scores(errors: Sequence[RowError]) -> str:
    """Render the errors by kernel and GPU, then by kernel and measured time."""
    lines = []
    for kernel in (RMSNORM, SILU):
        for model in dict.fromkeys(one.model for one in errors):
            own = [one for one in errors if one.row.kernel == kernel and one.model == model]
            groups = {gpu: [one for one in own if one.row.gpu == gpu] for gpu in PIPEWEAVE.values()}
            groups |= {
                f"under {_TINY_US:.0f} us": [one for one in own if one.row.time_us < _TINY_US],
                f"under {_SHORT_US:.0f} us": [one for one in own if one.row.time_us < _SHORT_US],
                f"{_SHORT_US:.0f} us and more": [one for one in own if one.row.time_us >= _SHORT_US],
                "all": own,
            }
            lines += [make_score_cells(kernel, name, model, part) for name, part in groups.items() if part]
    return render_table(_COLUMNS, lines)


def main() -> int:
    """Print the table; return 1, after one message, where the wheel is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="sm", help="by comma")
    parser.add_argument("--timing", choices=list(Timing), default="kernel", help="the rows' own is `kernel`")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the extracted kernels")
    parser.add_argument("--rows", type=Path, help="write each row with its prediction to this CSV file")
    arguments = parser.parse_args()
    try:
        kernels = ProductionKernels(arguments.cache, Timing(arguments.timing))
    except MissingWheelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    errors = list(predict_rows(read_rows(), arguments.model.split(","), kernels))
    print(render_scores(errors))
    if arguments.rows:
        write_rows(errors, arguments.rows)
    return 0


def write_rows(errors: Sequence[RowError], path: Path) -> None:
    """Write rows and predictions as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("kernel", "gpu", "seq", "dim", "time_us", "model", "predicted_us"))
        writer.writerows(
            (
                *(one.row.kernel, one.row.gpu, one.row.seq, one.row.dim, one.row.time_us),
                *(one.model, f"{one.predicted_us:.4g}"),
            )
            for one in errors
        )


if __name__ == "__main__":
    sys.exit(main())
