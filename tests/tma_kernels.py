"""Load kernels that use the TMA copy engine (execution/kernels/engine.cu) and build launches of them."""

import lzma
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.ir.launch import Dim3, Launch
from analyzer.pipeline.loaded_program import Program

KERNELS = Path(__file__).resolve().parent / "execution" / "kernels"
GPUS = {90: "h100-sxm", 100: "b200", 120: "rtx-5090"}


@cache
def load_program(arch: int, source: str = "engine") -> Program:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{source}_{arch}.txt"
        path.write_bytes(lzma.decompress((KERNELS / f"{path.name}.xz").read_bytes()))
        return analyzer.load(str(path))


def make_launch(grid: tuple[int, ...], threads: int, arguments: tuple[str, ...], shared_bytes: int) -> Launch:
    return Launch(
        grid=Dim3(*grid),
        block=Dim3(threads),
        dynamic_shared_bytes=shared_bytes,
        arguments=tuple(map(parse_argument, arguments)),
    )
