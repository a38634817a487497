"""Writing of a baseline: the kernels of this check, and those of inputs that it did not look at."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from analyzer.checking.baseline_store import (
    StoredBaseline,
    make_input_file_name,
    remove_baselines,
    write_baseline,
)
from analyzer.checking.comparability import list_differences
from analyzer.report.baseline_schema import Baseline, BaselineInput, BaselineKernel
from analyzer.text.errors import UsageError
from analyzer.text.kernel_names import list_names_for_people


def accept(
    path: Path,
    head: Baseline,
    kernels: Sequence[BaselineKernel],
    toolchains: Mapping[str, Sequence[str]],
    stored: Sequence[StoredBaseline],
    kept: Sequence[Sequence[BaselineKernel]],
    *,
    is_folder: bool,
) -> None:
    """Write the kernels of a check to a baseline, or to a folder with a baseline for each input.

    head: what their figures rest on; toolchains: by input.
    kept: kernels of each of the `stored` baselines that stay. Where they rest on something else, nothing is
        written.
    Raises UsageError.
    """
    entries = [BaselineInput(path=name, toolchain=tuple(tools)) for name, tools in toolchains.items()]
    wanted: dict[Path, list[BaselineKernel]] = {} if is_folder else {path: []}
    for kernel in kernels:
        file = path / make_input_file_name(kernel.input) if is_folder else path
        wanted.setdefault(file, []).append(kernel)
    staying = {each.path: (each.baseline, found) for each, found in zip(stored, kept, strict=True)}
    written = {
        file: _merge(file, _with_kernels(head, found, entries), *staying.get(file, (head, ())))
        for file, found in wanted.items()
    }
    leftovers = {file: pair for file, pair in staying.items() if file not in wanted}
    for file, baseline in written.items():
        write_baseline(file, baseline)
    for file, (baseline, found) in leftovers.items():
        if found and len(found) < len(baseline.kernels):
            write_baseline(file, _with_kernels(baseline, found, baseline.inputs))
    remove_baselines(file for file, (_, found) in leftovers.items() if not found)


def _merge(file: Path, new: Baseline, old: Baseline, kept: Sequence[BaselineKernel]) -> Baseline:
    """Return a baseline with kernels of an old one added. Raises UsageError where these do not compare."""
    if not kept:
        return new
    differences = list(list_differences(old, new))
    if differences:
        names = list_names_for_people(sorted({kernel.input for kernel in kept}), 3)
        raise UsageError(
            f"{file}: it keeps kernels of inputs that are not checked here ({names}), and "
            f"{'; '.join(differences)}",
            hint="check all inputs together, or keep a baseline for each: --per-input",
        )
    gpus = {gpu.gpu: gpu for gpu in (*old.gpus, *new.gpus)}
    merged = replace(new, gpus=tuple(gpus[key] for key in sorted(gpus)))
    return _with_kernels(merged, [*new.kernels, *kept], [*old.inputs, *new.inputs])


def _with_kernels(
    head: Baseline, kernels: Sequence[BaselineKernel], inputs: Sequence[BaselineInput]
) -> Baseline:
    """Return a baseline with these kernels and the inputs that they come from, the last entry of each."""
    names = {kernel.input for kernel in kernels}
    by_path = {each.path: each for each in inputs if each.path in names}
    ordered = sorted(kernels, key=lambda kernel: kernel.key)
    return replace(head, kernels=tuple(ordered), inputs=tuple(by_path[path] for path in sorted(by_path)))
