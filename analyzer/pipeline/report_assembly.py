"""From the facts of all inputs and the entries of their kernels to one report.

Only plain values come in, so a report is the same whether its parts were just worked out, found in a cache,
or sent by another machine.
"""

import re
from collections.abc import Iterator, Sequence

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.models.portability import find_best_arch_indices
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import ANALYZE_SCHEMA, KernelReport, Report
from analyzer.report.input_entries import (
    InputFacts,
    KernelFacts,
    make_cut_off_warnings,
    make_input_entry,
    make_refused_gpu_warnings,
    make_unknown_arch_warnings,
    make_unused_launch_warnings,
    make_unused_trip_warning,
)
from analyzer.text.demangling import demangle
from analyzer.text.errors import GateError, HardwareError, UsageError
from analyzer.text.kernel_names import find_matching_names, find_nearest_names, list_names_for_people
from analyzer.version import __version__

_ORDINAL = re.compile(r"#\d+")


def assemble_report(
    inputs: Sequence[InputFacts],
    reports: tuple[KernelReport, ...],
    *,
    gpus: tuple[Gpu, ...],
    options: Options,
    used_trip_rules: frozenset[TripCountRule],
) -> Report:
    """Return the report of kernels in the order of their inputs.

    gpus: those that the user named.
    Raises HardwareError where none of them runs any kernel, GateError for `options.min_coverage`.
    """
    _check_coverage(reports, options)
    refusals = [r.refused[0].reason for r in reports if r.refused and not r.predictions]
    if gpus and refusals and len(refusals) == len(reports):
        raise HardwareError(
            refusals[0], hint="choose a GPU of the dump's architecture, or one that has these units"
        )
    return Report(
        schema=ANALYZE_SCHEMA,
        tool_version=__version__,
        model_fingerprint=compute_model_fingerprint(),
        inputs=tuple(map(make_input_entry, inputs)),
        gpus=tuple(dict.fromkeys(p.gpu for r in reports for p in r.predictions)),
        kernels=reports,
        warnings=(
            *(warning for facts in inputs for warning in facts.warnings),
            *make_cut_off_warnings(inputs, reports),
            *make_unknown_arch_warnings(inputs, has_gpus=bool(gpus)),
            *make_refused_gpu_warnings(reports),
            *(
                make_unused_trip_warning(rule)
                for rule in options.trip_rules
                if rule not in used_trip_rules and not rule.is_general
            ),
            *make_unused_launch_warnings(find_unused_launches(inputs, options)),
        ),
    )


def assign_gpus(
    kernels: Sequence[KernelFacts], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[KernelFacts, tuple[Gpu, ...]]]:
    """Yield each kernel of an input with the GPUs that run it rather than its other versions.

    A fat binary holds a kernel for several architectures: each GPU takes the nearest of them. Versions that
    no GPU takes are left out.
    """
    versions: dict[str, list[str]] = {}
    places = []
    for kernel in kernels:
        same = versions.setdefault(kernel.name, [])
        places.append(len(same))
        same.append(kernel.arch)
    # What each GPU takes depends on the architectures alone, which are the same for most names.
    takes: dict[tuple[str, ...], list[set[int]]] = {}
    for kernel, place in zip(kernels, places, strict=True):
        archs = tuple(versions[kernel.name])
        if archs not in takes:
            takes[archs] = [set(find_best_arch_indices(archs, gpu)) for gpu in gpus]
        own = tuple(gpu for gpu, taken in zip(gpus, takes[archs], strict=True) if place in taken)
        if own or not gpus:
            yield kernel, own


def choose_kernel_facts(inputs: Sequence[InputFacts], patterns: Sequence[str]) -> list[list[KernelFacts]]:
    """Return the kernels of each input that some pattern fits, all where there is no pattern.

    A name that equals one kernel's in any input leaves out those of which it is a part; `#N` is the Nth
    kernel of each. Raises UsageError for a pattern that fits nothing.
    """
    if not patterns:
        return [list(facts.kernels) for facts in inputs]
    kernels = [kernel for facts in inputs for kernel in facts.kernels]
    names = [kernel.name for kernel in kernels]
    chosen = set[int]()
    for pattern in patterns:
        if _ORDINAL.fullmatch(pattern):
            found = [index for index, one in enumerate(kernels) if one.ordinal == int(pattern[1:])]
        else:
            found = find_matching_names(names, pattern)
        if not found:
            raise make_no_kernel_error(pattern, names)
        chosen.update(id(kernels[index]) for index in found)
    return [[kernel for kernel in facts.kernels if id(kernel) in chosen] for facts in inputs]


def make_no_kernel_error(pattern: str, known: Sequence[str]) -> UsageError:
    """Return the error of a name that fits none of the known ones, with the nearest of them."""
    near = find_nearest_names(known, pattern)
    hint = f"the input has: {list_names_for_people(sorted(known))}"
    if near:
        hint = f"did you mean {list_names_for_people(near)}?"
    return UsageError(f"no kernel fits {pattern}", hint=hint)


def find_unused_launches(inputs: Sequence[InputFacts], options: Options) -> tuple[str, ...]:
    """Return the entries of the launch file that no kernel of the inputs takes.

    Of several inputs with chosen kernels, some may not have been read: then none is returned.
    """
    if options.launch_table is None or (options.kernels and len(inputs) > 1):
        return ()
    names = [
        ((kernel.name, demangle(kernel.name)), kernel.triton_hash)
        for facts in inputs
        for kernel in facts.kernels
    ]
    return options.launch_table.find_unused_globs(names)


def _check_coverage(reports: Sequence[KernelReport], options: Options) -> None:
    total = sum(report.instructions for report in reports)
    coverage = sum(report.instructions * report.coverage for report in reports) / max(1, total)
    if coverage < options.min_coverage:
        raise GateError(
            f"coverage {coverage:.2%} is below --min-coverage {options.min_coverage:.2%}",
            hint="the warnings name the unknown opcodes",
        )
