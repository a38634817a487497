"""How often a model is asked, which is what pages and what-ifs cost: held by counts."""

from collections.abc import Callable

import pytest
from paths import TRACES

import analyzer
from analyzer.pipeline.options import Options

LIBRARY, TRITON = str(TRACES / "cuda/sm_80/report16.sass"), TRACES / "triton"
LARGE = analyzer.Launch(grid=2048, arguments=dict.fromkeys(range(3, 9), 4096))
SWEEP = ("l2=x0.5,x1,x2",)
LAUNCHES = {
    "saxpy": (LIBRARY, "a100", analyzer.Launch(grid=4096, block=256, arguments={3: 1 << 20})),
    "conv2d_7x7": (LIBRARY, "a100", analyzer.Launch(grid=(64, 64), block=(16, 16))),
    "matmul_tiled": (LIBRARY, "a100", analyzer.Launch(grid=(16, 16), block=(16, 16), arguments={3: 256})),
    "matmul": (str(TRITON / "sm_90/matmul.sass"), "h100", LARGE),
    "matmul_square": (str(TRITON / "sm_80/matmul_square_tile.sass"), "a100", LARGE),
}


@pytest.fixture
def count_runs(asking_modules: list[str]) -> Callable[[], int]:
    """Return a function that returns how often models ran since the last time, but for the ends of intervals."""

    def take() -> int:
        found = sum(module != "unknown_ranges" for module in asking_modules)
        asking_modules.clear()
        return found

    return take


@pytest.mark.parametrize("model", ["steady", "sm"])
def test_pages_and_what_ifs_ask_the_model_only_what_they_must(
    model: str, golden: Callable[[str], None], count_runs: Callable[[], int]
) -> None:
    """Runs of the report itself included, those of its advice not."""
    lines = []
    for name, (path, gpu, launch) in LAUNCHES.items():
        options = Options(kernels=(name.removesuffix("_square"),), models=(model,))
        page = Options(kernels=options.kernels, models=(model,), hardware_curves=True)
        curves = analyzer.analyze(path, gpu, launch=launch, options=page).kernels[0].hardware_curves
        lines.append(f"{name:13} page {count_runs():2} for {len(curves)} curves")
        analyzer.whatif(path, gpu, launch=launch, options=options, sweeps=SWEEP, elasticity=False)
        lines[-1] += f", three points {count_runs():2}"
        found = analyzer.whatif(path, gpu, launch=launch, options=options, sweeps=SWEEP).kernels[0]
        lines[-1] += f", and {len(found.elasticity or ())} elasticities {count_runs():2}\n"
    golden("".join(lines))
