"""From the facts of all inputs and the entries of their kernels to one report.

Only plain values come in, so a report is the same whether its parts were just worked out, found in a cache,
or sent by another machine.
"""

from collections.abc import Sequence

from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.pipeline.kernel_cache import KernelResult
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import ANALYZE_SCHEMA, KernelReport, Report
from analyzer.report.input_entries import (
    InputFacts,
    make_cut_off_warnings,
    make_input_entry,
    make_refused_gpu_warnings,
    make_unknown_arch_warnings,
    make_unused_launch_warnings,
    make_unused_trip_warning,
)
from analyzer.text.demangling import demangle
from analyzer.text.errors import GateError, HardwareError
from analyzer.version import __version__


def assemble_report(
    inputs: Sequence[InputFacts],
    results: Sequence[KernelResult],
    *,
    gpus: tuple[Gpu, ...],
    options: Options,
) -> Report:
    """Return the report of kernels in the order of their inputs.

    gpus: those that the user named.
    Raises HardwareError where none of them runs any kernel, GateError for `options.min_coverage`.
    """
    reports = tuple(report for result in results for report in result.reports)
    used_trip_rules = {rule for result in results for rule in result.used_trip_rules}
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
