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
from analyzer.checking.check_inputs import CheckInputs
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
    inputs: CheckInputs,
    *,
    is_folder: bool,
) -> None:
    """Write the kernels of a check to a baseline, or to a folder with a baseline for each input.

    head: what their figures rest on; toolchains: by input; stored: what is there.
    Kernels of inputs that were not checked stay; where they rest on something else, nothing is written.
    Raises UsageError.
    """
    wanted: dict[Path, list[BaselineKernel]] = {} if is_folder else {path: []}
    for kernel in kernels:
        file = path / make_input_file_name(kernel.input) if is_folder else path
        wanted.setdefault(file, []).append(kernel)
    written = [
        (file, _make_baseline(file, head, found, toolchains, stored, inputs))
        for file, found in wanted.items()
    ]
    leftovers = [each for each in stored if each.path not in wanted]
    for file, baseline in written:
        write_baseline(file, baseline)
    for each in leftovers:
        kept = _list_kept(each.baseline, inputs)
        if kept and len(kept) < len(each.baseline.kernels):
            write_baseline(each.path, _with_kernels(each.baseline, kept, each.baseline.inputs))
    remove_baselines(each.path for each in leftovers if not _list_kept(each.baseline, inputs))


def _make_baseline(
    file: Path,
    head: Baseline,
    kernels: Sequence[BaselineKernel],
    toolchains: Mapping[str, Sequence[str]],
    stored: Sequence[StoredBaseline],
    inputs: CheckInputs,
) -> Baseline:
    """Return the baseline to write into a file. Raises UsageError where what stays there does not fit."""
    entries = [BaselineInput(path=name, toolchain=tuple(tools)) for name, tools in toolchains.items()]
    old = next((each.baseline for each in stored if each.path == file), None)
    kept = [] if old is None else _list_kept(old, inputs)
    if old is None or not kept:
        return _with_kernels(head, kernels, entries)
    differences = list(list_differences(old, head))
    if differences:
        names = list_names_for_people(sorted({kernel.input for kernel in kept}), 3)
        raise UsageError(
            f"{file}: it keeps {len(kept):,} kernels of inputs that are not checked here ({names}), and "
            f"{'; '.join(differences)}",
            hint="check all inputs together, or keep a baseline for each: --per-input",
        )
    gpus = {gpu.gpu: gpu for gpu in (*old.gpus, *head.gpus)}
    merged = replace(head, gpus=tuple(gpus[key] for key in sorted(gpus)))
    return _with_kernels(merged, [*kernels, *kept], [*old.inputs, *entries])


def _list_kept(baseline: Baseline, inputs: CheckInputs) -> list[BaselineKernel]:
    return [kernel for kernel in baseline.kernels if not inputs.is_covered(kernel.input)]


def _with_kernels(
    head: Baseline, kernels: Sequence[BaselineKernel], inputs: Sequence[BaselineInput]
) -> Baseline:
    """Return a baseline with these kernels and the inputs that they come from, the last entry of each."""
    names = {kernel.input for kernel in kernels}
    by_path = {each.path: each for each in inputs if each.path in names}
    ordered = sorted(kernels, key=lambda kernel: kernel.key)
    return replace(head, kernels=tuple(ordered), inputs=tuple(by_path[path] for path in sorted(by_path)))
