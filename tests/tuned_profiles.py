"""A small profile, and the artifact that is fitted to it."""

from pathlib import Path

import numpy as np

from analyzer.tuning.artifact import save_artifact
from analyzer.tuning.kernel_space import find_kernel
from analyzer.tuning.samples import Samples, format_samples
from analyzer.tuning.wave_model import fit

N_SMS = 132
_MACROS = ((16, 64, 64), (64, 64, 64), (128, 128, 64))
_MICROS = {"gemm": ((4, 3), (8, 4)), "grouped_gemm": ((1, 4, 3), (8, 8, 4))}


def make_samples(kernel: str = "gemm", gpu: str = "h100-sxm") -> Samples:
    """Return a profile of a machine on which a tile takes its area and depth, and half as much in more warps."""
    space = find_kernel(kernel).space
    sizes = (16, 64, 256, 1024, 4096)
    if kernel == "gemm":
        shapes = [(m, n, 1024) for m in sizes for n in (1024, 4096)]
    else:
        shapes = [(m, e, 2, n, 1024) for m in sizes for e in (8, 32) for n in (512, 2048)]
    rows = [(shape, macro, micro) for shape in shapes for macro in _MACROS for micro in _MICROS[kernel]]
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    grid, loops = space.map_inputs(columns[0], columns[1])
    area = columns[1][:, 0] * columns[1][:, 1] + 2000
    time_us = 5.0 + np.ceil(grid / N_SMS) * loops * area / columns[2][:, -2] / 1000
    return Samples(space, gpu, *columns, time_us)


def write_profile(path: Path, kernel: str = "gemm", gpu: str = "h100-sxm") -> Path:
    """Write the profile as CSV."""
    path.write_text("".join(format_samples([make_samples(kernel, gpu)])))
    return path


def write_artifact(path: Path, kernel: str = "gemm", gpu: str = "h100-sxm") -> Path:
    """Write the artifact that is fitted to the profile."""
    save_artifact(fit(make_samples(kernel, gpu), N_SMS).pack(), path)
    return path
