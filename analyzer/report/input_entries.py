"""Inputs and their warnings as report entries."""

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.flow.missing_code import CUT_OFF_CODE
from analyzer.hardware.gpu_database import list_known_archs, strip_arch_suffix
from analyzer.ir.module import Module
from analyzer.report.analyze_schema import InputEntry, KernelReport, WarningEntry
from analyzer.text.source import Diagnostic

_MAX_SHOWN_GPUS = 4
_MAX_SHOWN_GLOBS = 4


def make_input_entry(module: Module) -> InputEntry:
    """Return the entry of one input file."""
    return InputEntry(
        path=module.path,
        format=module.source_format.value,
        architecture=tuple(dict.fromkeys(kernel.arch for kernel in module.kernels)),
        toolchain=module.toolchain,
        levels=module.levels or UNSET,
        triton=dict(module.triton) if module.levels and module.triton else UNSET,
    )


def make_warning_entry(module: Module, diagnostic: Diagnostic) -> WarningEntry:
    """Return the entry of a diagnostic of an input."""
    location = diagnostic.location
    return WarningEntry(
        code=diagnostic.code,
        message=diagnostic.message,
        path=location.path if location else module.path,
        line=location.line if location else None,
        count=diagnostic.count,
    )


def make_unknown_arch_warnings(modules: Sequence[Module], *, has_gpus: bool) -> Iterator[WarningEntry]:
    """Yield a warning for each architecture that has no figures or that the dump does not name.

    has_gpus: the user named GPUs, so that more than counts can be given.
    """
    counts: dict[tuple[str, str], int] = {}
    for module in modules:
        for kernel in module.kernels:
            if strip_arch_suffix(kernel.arch) not in list_known_archs():
                key = (module.path, kernel.arch)
                counts[key] = counts.get(key, 0) + 1
    for (path, arch), count in counts.items():
        reason = f"architecture {arch} is not known" if arch else "the dump names no architecture"
        consequence = "counts only; --gpu NAME takes the code to a known GPU"
        if has_gpus:
            consequence = "taken to the GPU as it is"
        if not arch:
            consequence += "; --arch sm_90 would name it"
        yield WarningEntry(
            code="unknown-architecture", message=f"{reason}: {consequence}", path=path, line=None, count=count
        )


def make_refused_gpu_warnings(kernels: Sequence[KernelReport]) -> Iterator[WarningEntry]:
    """Yield a warning that names the GPUs that ran some kernel's code for no model, beside GPUs that did."""
    names = {refusal.gpu_name for kernel in kernels if kernel.predictions for refusal in kernel.refused}
    if names:
        shown = sorted(names)[:_MAX_SHOWN_GPUS]
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        message = f"refused beside GPUs that answer: {', '.join(shown)}{more}; `--format json` says why"
        yield WarningEntry(code="refused-gpu", message=message, path="", line=None, count=1)


def make_cut_off_warnings(
    modules: Sequence[Module], reports: Sequence[KernelReport]
) -> Iterator[WarningEntry]:
    """Yield a warning for each kernel of whose code a part is missing, unless it was given as a part."""
    paths = {
        (kernel.name, kernel.arch, kernel.line): module.path
        for module in modules
        for kernel in module
        if not kernel.is_excerpt
    }
    found = dict.fromkeys(
        (
            report.demangled,
            sentence,
            paths[key],
            report.line,
        )
        for report in reports
        if (key := (report.name, report.architecture, report.line)) in paths
        for sentence in report.missing_code
    )
    for name, sentence, path, line in found:
        yield WarningEntry(
            code=CUT_OFF_CODE,
            message=f"{name}: {sentence}, and no count of it is exact",
            path=path,
            line=line,
            count=1,
        )


def make_unused_launch_warnings(globs: Sequence[str]) -> Iterator[WarningEntry]:
    """Yield one warning for all entries of the launch file that fit no kernel."""
    if globs:
        shown = ", ".join(globs[:_MAX_SHOWN_GLOBS]) + (" ..." if len(globs) > _MAX_SHOWN_GLOBS else "")
        message = f"the launch file names kernels that are not in the input: {shown}"
        yield WarningEntry(code="unused-launch", message=message, path="", line=None, count=len(globs))


def make_unused_trip_warning(rule: TripCountRule) -> WarningEntry:
    """Return the warning of a rule of the user that fits no loop."""
    message = f"--trip {rule} fits no loop; `--loops` lists them"
    return WarningEntry(code="unused-trip", message=message, path="", line=None, count=1)
