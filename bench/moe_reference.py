"""Hold the quick ranking of `tune rank` to the whole analysis (`sm` on the cubin) on a sample.

    python bench/moe_reference.py --cubins FOLDER [--count 6]

Takes cubins as `bench/moe_facts.py --cubins` does. Of each shape: configurations spread over the first
hundred of the ranking; prints rank correlation, ratio of times and seconds of a core for each candidate.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from analyzed_time import time_by_analysis
from moe_facts import read_cubins
from scipy.stats import spearmanr

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.text.errors import WarplensError
from analyzer.tuning.fused_moe_space import MoeShape
from analyzer.tuning.moe_ranking import rank_configs

_SHAPES = (MoeShape(16, 64, 6, 2048, 1408), MoeShape(1024, 60, 4, 2048, 1408))
_GPUS = {"a100-80gb-sxm": 80, "h100-sxm": 90}
_SPREAD = 100


def main() -> None:
    """Compare both models on a sample."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cubins", type=Path, required=True)
    parser.add_argument("--count", type=int, default=6)
    given = parser.parse_args()
    for name, arch in _GPUS.items():
        gpu, ready = find_gpus(name)[0], read_cubins(given.cubins / f"sm_{arch}")
        for shape in _SHAPES:
            ranked = rank_configs(shape, gpu, top=_SPREAD).configurations
            ranked = tuple(each for each in ranked if each.config["GROUP_SIZE_M"] == 1)
            chosen = [ranked[place] for place in np.linspace(0, len(ranked) - 1, given.count).astype(int)]
            quick, whole, started = [], [], time.process_time()
            for each in chosen:
                rows, columns, depth, group, warps, stages = each.config.values()
                cubin, shared = ready[rows, columns, depth, warps, stages]
                try:
                    config = (rows, columns, depth, group, warps, stages)
                    whole.append(time_by_analysis(cubin, shared, shape, config, gpu))
                    quick.append(each.time_us)
                except WarplensError as error:
                    print("  ", error)
            seconds = (time.process_time() - started) / max(1, len(chosen))
            ratio = np.array(quick) / np.array(whole)
            print(
                f"{name} M={shape.tokens}: rank correlation {spearmanr(quick, whole)[0]:.2f}, time ratio "
                f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f}), {seconds:.1f} s each",
                flush=True,
            )


if __name__ == "__main__":
    main()
