"""Compare all models on real kernels: `python bench/models.py > docs/models-compared.md`.

Kernels are those of the shipped dumps, with typical launches; nothing is measured on hardware here.
"""

from dataclasses import dataclass
from pathlib import Path

from markdown import render_table

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.models.registry import list_models
from analyzer.pipeline import Options
from analyzer.report.analyze_schema import PredictionEntry

TRACES = Path(__file__).resolve().parents[1] / "traces"
_CUBE_ARGUMENTS = tuple(f"{place}=4096" for place in range(3, 9))
_ORDER = ("sm", "steady", "amali", "gcom", "mdm", "roofline", "warp")
_HEAD = """# The models side by side

Made by `python bench/models.py > docs/models-compared.md`. Cycles of one launch by model, thousands; what
binds it for `sm`; how busy the busiest resource of the hottest loop is. Nothing here is measured on
hardware.
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel of a shipped dump and its launch."""

    dump: str
    kernel: str
    gpu: str
    grid: tuple[int, ...]
    block: tuple[int, ...] | None = None
    arguments: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Dump and kernel, as the table names them."""
        return f"{self.dump.removesuffix('.sass')} {self.kernel}"


CASES = (
    Case("triton/sm_80/matmul.sass", "matmul", "a100", (2048,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_80/matmul_square_tile.sass", "matmul", "a100", (1024,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_80/matmul_large_tile.sass", "matmul", "a100", (512,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_90/matmul_large_tile.sass", "matmul", "h100", (512,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_89/matmul.sass", "matmul", "rtx-4090", (2048,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_100/matmul.sass", "matmul", "b200", (2048,), None, _CUBE_ARGUMENTS),
    Case("triton/sm_80/softmax.sass", "softmax", "a100", (8192,), None, ("2=1024", "3=1024", "4=1024")),
    Case("triton/sm_90/rmsnorm.sass", "rmsnorm", "h100", (8192,), None, ("3=4096", "4=4096", "5=1e-5")),
    Case("cuda/sm_80/report16.sass", "vector_add", "a100", (40_000,), (256,), ("3=10240000",)),
    Case("cuda/sm_80/report16.sass", "naive_transpose", "a100", (128, 128), (32, 8), ("2=1024", "3=4096")),
    Case("cuda/sm_80/report16.sass", "matmul_naive", "a100", (64, 64), (16, 16), ("3=1024",)),
    Case("cuda/sm_80/report16.sass", "matmul_tiled", "a100", (64, 64), (16, 16), ("3=1024",)),
    Case("cuda/sm_80/textures.sass", "sample_bilinear", "a100", (128, 128), (16, 16), ("2=2048", "3=2048")),
)


def make_row(case: Case) -> tuple[str, ...]:
    """Build the table row of a case."""
    launch = Launch(
        grid=Dim3(*case.grid),
        block=Dim3(*case.block) if case.block else None,
        arguments=tuple(map(parse_argument, case.arguments)),
    )
    options = Options(kernels=(case.kernel,), launch=launch, models=_ORDER)
    (kernel,) = analyzer.analyze(str(TRACES / case.dump), case.gpu, options=options).kernels
    first = kernel.predictions[0]
    busy = f"{kernel.loops[0].busiest} {kernel.loops[0].busiest_share:.0%}" if kernel.loops else ""
    cells = [case.title, first.gpu_name, kernel.counts.provenance]
    cells += [_format_cycles(entry) for entry in kernel.predictions]
    cells += [f"{first.time_us:,.1f}", first.bound, busy]
    return tuple(cells)


def _format_cycles(entry: PredictionEntry) -> str:
    return f"{entry.cycles / 1000:,.1f}"


def main() -> None:
    """Print the page."""
    assert {*_ORDER, "hybrid"} == set(list_models())
    print(_HEAD)
    columns = ("kernel", "GPU", "counts", *_ORDER, "sm, us", "bound", "hottest loop")
    print(render_table(columns, map(make_row, CASES)), end="")


if __name__ == "__main__":
    main()
