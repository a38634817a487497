"""Compare launches of Triton kernels at their levels: Triton IR, PTX and SASS, over a corpus of kernels.

    # once, steps `fetch`, `environment` and `compile` of bench/triton_corpus.py make /tmp/corpus45
    python bench/levels.py run /tmp/corpus45 -o levels.json --arch sm_90
    python bench/levels.py show levels.json --different
    python bench/levels.py render levels.json > docs/levels.md

`run` starts `warplens analyze CUBIN --levels` with the grid and the arguments that the package gave
(launch.json beside each kernel), and keeps the `levels` of the report. Pointers are allocations of their own;
tensors of whole numbers hold zeros.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

QUANTITIES = (
    *("mma_fma", "global_loaded_bytes", "global_stored_bytes"),
    *("shared_bytes", "barriers", "xu_operations"),
)
PAIRS = (("ttgir", "sass"), ("ptx", "sass"))
_GPUS = {"sm_80": "a100", "sm_90": "h100", "sm_100": "b200", "sm_120": "rtx-5090"}
_WHOLE_TYPES = ("torch.int", "torch.uint", "torch.bool")
_ROOT = Path(__file__).resolve().parents[1]


def find_launches(corpus: Path, arch: str) -> list[Path]:
    """Return the folders of kernels compiled for an architecture, those with a known grid."""
    return sorted(path.parent for path in corpus.glob(f"triton-*/*/*/{arch}/launch.json"))


def make_arguments(folder: Path) -> list[str] | None:
    """Return the options of `analyze` for the launch of a folder; None where its grid is not known."""
    launch = json.loads((folder / "launch.json").read_text())
    if not launch["grid"]:
        return None
    options = ["--grid", ",".join(map(str, launch["grid"]))]
    for name, value in launch["arguments"].items():
        written = "" if name in launch["constants"] or _is_constant(value) else _write_argument(value)
        if written:
            options += ["--arg", f"{name}={written}"]
    return options


def _is_constant(value: Any) -> bool:
    """True for what Triton compiles in: None, and 1 as a whole number."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1)


def _write_argument(value: Any) -> str:
    if isinstance(value, Mapping):
        return "zeros" if str(value["tensor"]).startswith(_WHOLE_TYPES) else "ptr"
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, int | float) else ""


def analyze_folder(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the levels of a kernel's launch, or why there are none."""
    entry: dict[str, Any] = {"kernel": "/".join(folder.parts[-4:])}
    options = make_arguments(folder)
    cubin = next(folder.glob("*.cubin"), None)
    if options is None or cubin is None:
        return {**entry, "problem": "the grid is not known"}
    command = [sys.executable, "-m", "analyzer", "analyze", str(cubin), "-g", _GPUS[folder.name]]
    command += [*options, "--levels", "--format", "json", "-j", "1"]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=_ROOT)
    except subprocess.TimeoutExpired:
        return {**entry, "problem": f"more than {seconds:.0f} s"}
    entry["seconds"] = round(time.monotonic() - start, 1)
    if done.returncode != 0 or not done.stdout.startswith("{"):
        return {**entry, "problem": f"exit {done.returncode}: {done.stderr[-300:]}"}
    kernels = json.loads(done.stdout)["kernels"]
    return {**entry, "levels": kernels[0].get("levels") or []}


def run(corpus: Path, arch: str, options: argparse.Namespace) -> None:
    """Analyze launches of a corpus; write their levels."""
    folders = [folder for folder in find_launches(corpus, arch) if options.only in str(folder)]
    done = json.loads(options.output.read_text()) if options.output.exists() and options.resume else []
    done = [entry for entry in done if "levels" in entry]
    known = {entry["kernel"] for entry in done}
    folders = [folder for folder in folders if "/".join(folder.parts[-4:]) not in known][: options.count]
    end = time.monotonic() + options.seconds
    with ThreadPoolExecutor(options.jobs) as pool:
        for entry in pool.map(
            lambda folder: analyze_folder(folder, options.limit) if time.monotonic() < end else None, folders
        ):
            if entry is not None:
                done.append(entry)
                options.output.write_text(json.dumps(done))
    print(f"{len(done)} launches; {sum('levels' in entry for entry in done)} with levels")


def compare(entries: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str, float, float]]:
    """Yield kernel, pair of levels, quantity, verdict and both values."""
    for entry in entries:
        levels = {level["level"]: level for level in entry.get("levels", ())}
        for upper, lower in PAIRS:
            if upper not in levels or lower not in levels:
                continue
            for quantity in QUANTITIES:
                first, second = levels[upper].get(quantity), levels[lower].get(quantity)
                if first is None or second is None:
                    yield entry["kernel"], f"{upper}-{lower}", quantity, "unknown", 0, 0
                    continue
                verdict = "equal" if first == second else "different"
                yield entry["kernel"], f"{upper}-{lower}", quantity, verdict, first, second


def summarize(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a table: equal, different and unknown by pair of levels and quantity."""
    counts = Counter((pair, quantity, verdict) for _, pair, quantity, verdict, _, _ in compare(entries))
    rows = ["| levels | quantity | equal | different | not known |", "|---|---|--:|--:|--:|"]
    for upper, lower in PAIRS:
        for quantity in QUANTITIES:
            pair = f"{upper}-{lower}"
            numbers = (counts[pair, quantity, verdict] for verdict in ("equal", "different", "unknown"))
            rows.append(f"| {upper}, {lower} | {quantity} | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows)


_PAGE = """# Levels of a launch compared over packages' kernels

<!-- written by `python bench/levels.py render LEVELS.json` -->

{n_launches} launches of Triton kernels of {n_packages} packages ({packages}), compiled without a GPU by
`bench/triton_corpus.py` for {archs} and launched as the packages launch them (`bench/levels.py run`). Tensors
of whole numbers hold zeros, so kernels that read lengths or indices do little there. Each launch is counted
at three levels: Triton IR evaluated tile by tile, PTX mapped to the target (`--virtual`) and SASS.

{table}

What differs by its nature:

- **shared bytes**, Triton IR: changes of layout, reductions and scans are lowered below it; PTX and SASS:
  ptxas drops stores and loads of shared memory that it can prove redundant.
- **barriers**, Triton IR: Triton places the barriers that shared memory needs when it lowers TTGIR.
- **transcendental operations**, Triton IR: one function is several instructions, elements that several
  threads hold are computed by each, and a function of libdevice branches on its argument (tanh); PTX and
  SASS: ptxas computes a common subexpression once.

Launches whose products or global bytes differ:

| kernel | quantity | levels | higher | lower | reason |
|---|---|---|--:|--:|---|
{differences}
"""
# What was found at the lines that `analyze --levels` names.
_REASONS = {
    "p_matmul_ogs": "copies through tensor descriptors: the box is in memory, known to Triton IR alone",
    "attn_fwd_tma": "copies through tensor descriptors: the box is in memory, known to Triton IR alone",
    "unified_attention": "reads lengths (zeros here) that Triton IR does not take from arrays",
    "chunk_scan_fwd": "reads lengths (zeros here) that Triton IR does not take from arrays",
    "state_passing": "reads lengths (zeros here) that Triton IR does not take from arrays",
    "combined_routing": "ptxas drops loads without use",
    "blockwise_fp8_gemm": "ptxas drops half of the loads of one line (blockwise_quantization.py:97)",
    "chunk_gla_bwd_kernel_dA": "blocks above the diagonal, 3/8 of all, are masked and not computed",
    "chunk_bwd_kernel_d": "PTX has as few: likely masked blocks, as in chunk_gla_bwd_kernel_dA; not traced",
    "chunk_generalized": "PTX has as few: likely masked blocks, as in chunk_gla_bwd_kernel_dA; not traced",
}


def render(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the page docs/levels.md."""
    compared = [entry for entry in entries if entry.get("levels")]
    names = [entry["kernel"].split("/") for entry in compared]
    packages = sorted({name[1] for name in names})
    rows = [
        f"| {'/'.join(kernel.split('/')[1:3])} | {quantity} | {pair.replace('-', ', ')}"
        f" | {first:,.0f} | {second:,.0f} | {_find_reason(kernel)} |"
        for kernel, pair, quantity, verdict, first, second in compare(compared)
        if verdict == "different" and quantity in QUANTITIES[:3]
    ]
    return _PAGE.format(
        n_launches=len(compared),
        n_packages=len(packages),
        packages=", ".join(packages),
        archs=", ".join(sorted({name[3] for name in names})),
        table=summarize(compared),
        differences="\n".join(rows),
    )


def _find_reason(kernel: str) -> str:
    return next((reason for part, reason in _REASONS.items() if part in kernel), "not looked into")


def main() -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="action", required=True)
    one = commands.add_parser("run")
    one.add_argument("corpus", type=Path)
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--arch", default="sm_90")
    one.add_argument("--only", default="")
    one.add_argument("--jobs", type=int, default=1)
    one.add_argument("--count", type=int, default=10_000)
    one.add_argument("--limit", type=float, default=60.0, help="seconds for one launch")
    one.add_argument("--seconds", type=float, default=280.0, help="for all")
    one.add_argument("--resume", action="store_true")
    two = commands.add_parser("show")
    two.add_argument("output", type=Path)
    two.add_argument("--different", action="store_true")
    commands.add_parser("render").add_argument("output", type=Path)
    options = parser.parse_args()
    if options.action == "run":
        run(options.corpus, options.arch, options)
        return
    entries = json.loads(options.output.read_text())
    if options.action == "render":
        print(render(entries), end="")
        return
    print(summarize(entries))
    if options.different:
        for kernel, pair, quantity, verdict, first, second in compare(entries):
            if verdict != "equal":
                print(f"{verdict} {pair} {quantity}: {first:g} {second:g} {kernel}")


if __name__ == "__main__":
    main()
