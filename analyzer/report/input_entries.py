"""Inputs and their warnings as report entries."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UNSET, Struct

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.flow.missing_code import CUT_OFF_CODE
from analyzer.hardware.gpu_database import list_known_archs, strip_arch_suffix
from analyzer.ir.module import Kernel, Module
from analyzer.report.analyze_schema import InputEntry, KernelReport, WarningEntry
from analyzer.text.source import Diagnostic

_MAX_SHOWN_GPUS = 4
_MAX_SHOWN_GLOBS = 4


class KernelFacts(Struct, frozen=True, kw_only=True):
    """What is said of a kernel without looking at its code again."""

    name: str
    arch: str
    line: int  # of the input, at which the function begins
    ordinal: int  # position among the kernels of the input, from 1
    instructions: int
    is_excerpt: bool
    triton_hash: str
    digest: str = ""  # of its content, see `pipeline.content_digests`; "" where nobody asked for it


class InputFacts(Struct, frozen=True, kw_only=True):
    """What a report says of an input beside its kernels, without the input's code.

    It is a plain value, so that an input that has not changed need not be read again.
    """

    path: str
    source_format: str
    toolchain: str
    triton: Mapping[str, str | int]  # as in `Module`
    warnings: tuple[WarningEntry, ...]
    kernels: tuple[KernelFacts, ...]  # in the order of the input
    levels: Mapping[str, str] = {}  # as in `Module`


def collect_input_facts(module: Module, first_ordinal: int = 1, digests: Sequence[str] = ()) -> InputFacts:
    """Return the facts of one input file.

    first_ordinal: of its first kernel; more than 1 where it is one file of a folder.
    digests: of the kernels, none where they are not needed.
    """
    return InputFacts(
        path=module.path,
        source_format=module.source_format.value,
        toolchain=module.toolchain,
        triton=dict(module.triton),
        warnings=tuple(make_warning_entry(module.path, diagnostic) for diagnostic in module.diagnostics),
        kernels=tuple(
            make_kernel_facts(kernel, first_ordinal + index, digests[index] if digests else "")
            for index, kernel in enumerate(module.kernels)
        ),
        levels=dict(module.levels),
    )


def make_kernel_facts(kernel: Kernel, ordinal: int, digest: str = "") -> KernelFacts:
    """Return the facts of a kernel; ordinal and digest as in `KernelFacts`."""
    return KernelFacts(
        name=kernel.name,
        arch=kernel.arch,
        line=kernel.line,
        ordinal=ordinal,
        instructions=len(kernel),
        is_excerpt=kernel.is_excerpt,
        triton_hash=kernel.triton_hash,
        digest=digest,
    )


def make_input_entry(facts: InputFacts) -> InputEntry:
    """Return the entry of one input file."""
    return InputEntry(
        path=facts.path,
        format=facts.source_format,
        architecture=tuple(dict.fromkeys(kernel.arch for kernel in facts.kernels)),
        toolchain=facts.toolchain,
        levels=facts.levels or UNSET,
        triton=facts.triton if facts.levels and facts.triton else UNSET,
    )


def make_warning_entry(path: str, diagnostic: Diagnostic) -> WarningEntry:
    """Return the entry of a diagnostic of an input."""
    location = diagnostic.location
    return WarningEntry(
        code=diagnostic.code,
        message=diagnostic.message,
        path=location.path if location else path,
        line=location.line if location else None,
        count=diagnostic.count,
    )


def make_unknown_arch_warnings(inputs: Sequence[InputFacts], *, has_gpus: bool) -> Iterator[WarningEntry]:
    """Yield a warning for each architecture that has no figures or that the dump does not name.

    has_gpus: the user named GPUs, so that more than counts can be given.
    """
    known = set(list_known_archs())
    counts: dict[tuple[str, str], int] = {}
    for facts in inputs:
        for kernel in facts.kernels:
            if strip_arch_suffix(kernel.arch) not in known:
                key = (facts.path, kernel.arch)
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
    inputs: Sequence[InputFacts], reports: Sequence[KernelReport]
) -> Iterator[WarningEntry]:
    """Yield a warning for each kernel of whose code a part is missing, unless it was given as a part."""
    paths = {
        (kernel.name, kernel.arch, kernel.line): facts.path
        for facts in inputs
        for kernel in facts.kernels
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
