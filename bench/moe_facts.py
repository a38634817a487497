"""Compile the fused-MoE kernel for an architecture, and write the table of facts that `tune rank` reads.

    python bench/moe_facts.py 80 86 89 90 100 120 [--jobs 2] [--cubins FOLDER]

Needs Triton 3.4 beside this package's own dependencies (`PYTHONPATH` may name it) and no GPU: about 0.6 s of
a core for each of 240 to 410 codes. `--cubins` takes `FOLDER/sm_ARCH/TILE_wWARPS_sSTAGES.cubin` compiled
before, each with its `.json` of shared bytes.
"""

import argparse
import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.tuning.fact_extraction import Code, extract_facts
from analyzer.tuning.fused_moe_space import KERNEL, list_fitting_codes
from analyzer.tuning.kernel_facts import find_facts_file, save_facts
from analyzer.tuning.triton_compilation import compile_codes, find_triton_version, write_cubins

REFERENCE_GPUS = {
    80: "a100-80gb-sxm",
    86: "a40",
    89: "l40s",
    90: "h100-sxm",
    100: "b200",
    120: "rtx-pro-6000-blackwell-server",
}
_NAME = re.compile(r"(\d+)x(\d+)x(\d+)_w(\d+)_s(\d+)")


def read_cubins(folder: Path) -> dict[Code, tuple[Path, int]]:
    """Return cubins that were compiled before, with their bytes of shared memory."""
    found: dict[Code, tuple[Path, int]] = {}
    for path in sorted(folder.glob("*.cubin")):
        match = _NAME.fullmatch(path.stem)
        if match:
            rows, columns, depth, warps, stages = map(int, match.groups())
            shared = json.loads(path.with_suffix(".json").read_text())["shared"]
            found[rows, columns, depth, warps, stages] = (path, int(shared))
    return found


def make_table(arch: int, cubins: Mapping[Code, tuple[Path, int]], made_by: str, jobs: int) -> None:
    """Analyze the codes of an architecture and write their table."""
    gpu = find_gpus(REFERENCE_GPUS[arch])[0]
    facts = extract_facts(KERNEL, f"sm_{arch}", gpu, made_by, cubins, jobs)
    save_facts(facts, find_facts_file(KERNEL, f"sm_{arch}"))
    print(f"sm_{arch}: {len(facts.codes)} codes", flush=True)


def list_wanted_codes(arch: int) -> list[Code]:
    """Return the codes that can run on the architecture."""
    limits = find_gpus(REFERENCE_GPUS[arch])[0].arch.limits  # type: ignore[union-attr]
    return list_fitting_codes(int(limits.shared_bytes_per_sm.value), int(limits.shared_bytes_per_cta.value))


def main() -> None:
    """Make the tables that the command line names."""
    parser = argparse.ArgumentParser()
    parser.add_argument("archs", type=int, nargs="+", choices=sorted(REFERENCE_GPUS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cubins", type=Path)
    given = parser.parse_args()
    for arch in given.archs:
        wanted = list_wanted_codes(arch)
        if given.cubins:
            ready = read_cubins(given.cubins / f"sm_{arch}")
            cubins = {code: ready[code] for code in wanted if code in ready}
            print(f"sm_{arch}: {len(wanted) - len(cubins)} of {len(wanted)} codes were not compiled")
            make_table(arch, cubins, "Triton 3.4.0", given.jobs)
            continue
        with tempfile.TemporaryDirectory() as name:
            cubins = dict(write_cubins(compile_codes(wanted, arch, "bf16", given.jobs), Path(name)))
            make_table(arch, cubins, f"Triton {find_triton_version()}", given.jobs)


if __name__ == "__main__":
    main()
