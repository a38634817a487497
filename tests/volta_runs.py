"""Launches of the kernels in traces/volta."""

from dataclasses import dataclass

from paths import TRACES

import analyzer
from analyzer.ir.launch import Argument, ArgumentValue, Dim3, Launch, Pointer
from analyzer.report.analyze_schema import KernelReport


@dataclass(frozen=True, slots=True)
class VoltaLaunch:
    """One launch; arguments by position."""

    kernel: str
    grid: Dim3
    block: Dim3
    arguments: tuple[ArgumentValue, ...]
    dump: str = "kernels"
    shared_bytes: int = 0

    def analyze_on(
        self, gpu: str, clock_mhz: float | None = None, models: tuple[str, ...] = ()
    ) -> KernelReport:
        given = tuple(Argument(place, value) for place, value in enumerate(self.arguments))
        launch = Launch(
            grid=self.grid,
            block=self.block,
            dynamic_shared_bytes=self.shared_bytes,
            arguments=given,
            clock_mhz=clock_mhz,
        )
        options = analyzer.Options(kernels=(self.kernel,), launch=launch, models=models)
        dump = str(TRACES / "volta" / "sm_70" / f"{self.dump}.sass")
        return analyzer.analyze(dump, gpu, options=options).kernels[0]


POINTER = Pointer()
STREAM = VoltaLaunch("walsh_global", Dim3(8192), Dim3(256), (POINTER, POINTER, 2097152))
FLOATS = VoltaLaunch("binomial", Dim3(1024), Dim3(128), ())
