"""The analysis of a kernel as an entry of the report."""

from analyzer.demand.stack_use import measure_stack_use
from analyzer.demand.warp_demand import WarpDemand
from analyzer.ir.launch import Dim3
from analyzer.models.arithmetic import measure_arithmetic
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult
from analyzer.models.prediction_figures import PredictionFigures
from analyzer.models.waves import measure_tail_share
from analyzer.report.analyze_schema import (
    AdviceEntry,
    KernelReport,
    LaunchEntry,
    PredictionEntry,
    RefusalEntry,
)
from analyzer.report.counts_entries import make_counts_entry
from analyzer.report.difference_entries import make_difference_entries
from analyzer.report.kernel_analysis import KernelAnalysis
from analyzer.report.level_entries import make_level_differences, make_level_entries
from analyzer.report.listing_entries import make_listing_entries
from analyzer.report.loop_entries import list_loops_not_entered, make_loop_entries
from analyzer.report.memory_entries import make_memory_entries, make_space_entries, make_traffic_entry
from analyzer.report.pipe_entries import make_pipe_entries
from analyzer.report.speed_of_light_entries import make_speed_of_light_entry
from analyzer.report.unknown_entries import list_missing_code, make_unknown_entries
from analyzer.text.demangling import demangle
from analyzer.text.source_files import SourceFiles


def make_kernel_report(
    analysis: KernelAnalysis,
    *,
    input_path: str = "",
    listing: bool = False,
    source_files: SourceFiles | None = None,
    measures_tail: bool = True,
) -> KernelReport:
    """Return the report entry of one kernel; `listing` adds an entry for each instruction.

    source_files: where the listing finds the text of source lines; None: nowhere.
    measures_tail: ask the model for the cost of the last wave, too.
    """
    kernel, mix, first = analysis.kernel, analysis.mix, analysis.first_result
    demand, stack = first.model_input.demand if first else None, measure_stack_use(kernel)
    arithmetic = measure_arithmetic(first.model_input) if first else None
    flops = arithmetic.total_flops if arithmetic else 0.0
    return KernelReport(
        input=input_path,
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        ordinal=analysis.ordinal,
        line=kernel.line,
        instructions=mix.total,
        coverage=mix.coverage,
        has_control_codes=kernel.control_words is not None,
        registers=kernel.resources.registers,
        registers_exact=kernel.resources.has_exact_registers,
        shared_bytes=kernel.resources.shared_bytes,
        spill_bytes=stack.spill_slot_bytes,
        stack_frame_bytes=stack.frame_bytes,
        spill_store_bytes=stack.spill_store_bytes,
        spill_load_bytes=stack.spill_load_bytes,
        spills_estimated=stack.is_estimate,
        launch=_make_launch_entry(analysis),
        mix=mix.counts_by_opcode,
        modifiers=mix.counts_by_mnemonic,
        constant_operands=mix.n_constant_operand_reads,
        pipes=make_pipe_entries(demand),
        bytes=_make_bytes_by_space(demand),
        flops=flops,
        helper_flops=float(arithmetic.helper_flops.sum()) if arithmetic else 0.0,
        conversions=float(arithmetic.conversions.sum()) if arithmetic else 0.0,
        tensor_fma=demand.tensor_fma if demand else 0.0,
        arithmetic_intensity=flops / demand.global_bytes if demand and demand.global_bytes else None,
        counts=make_counts_entry(analysis),
        unknowns=make_unknown_entries(analysis),
        missing_code=list_missing_code(analysis),
        memory=make_memory_entries(analysis),
        memory_spaces=make_space_entries(analysis),
        traffic=make_traffic_entry(analysis),
        loops=make_loop_entries(analysis),
        loops_not_entered=list_loops_not_entered(analysis),
        predictions=tuple(
            make_prediction_entry(on_gpu.result, transferred=on_gpu.transferred, measures_tail=measures_tail)
            for on_gpu in analysis.results
            if on_gpu.result
        ),
        refused=tuple(
            RefusalEntry(gpu=on_gpu.gpu, gpu_name=on_gpu.gpu_name, reason=on_gpu.refusal_reason)
            for on_gpu in analysis.results
            if on_gpu.result is None
        ),
        advice=_make_advice_entries(analysis),
        hardware_curves=analysis.hardware_curves,
        listing=make_listing_entries(analysis, source_files) if listing else (),
        differences=make_difference_entries(analysis),
        levels=make_level_entries(analysis.levels),
        level_differences=make_level_differences(analysis.levels),
    )


def _make_launch_entry(analysis: KernelAnalysis) -> LaunchEntry:
    def get_sizes(dim: Dim3 | None) -> tuple[int, int, int] | None:
        return None if dim is None else dim.sizes

    launch = analysis.launch
    return LaunchEntry(
        grid=get_sizes(launch.grid),
        block=get_sizes(launch.block),
        cluster=get_sizes(launch.cluster or analysis.kernel.cluster),
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        arguments={str(argument.parameter): str(argument.value) for argument in launch.arguments},
    )


def _make_bytes_by_space(demand: WarpDemand | None) -> dict[str, float]:
    if demand is None:
        return {}
    return {
        "global": demand.global_bytes,
        "shared": demand.shared_bytes,
        "local": demand.local_bytes,
    }


def make_prediction_entry(
    result: ModelResult, *, transferred: bool, measures_tail: bool = False
) -> PredictionEntry:
    """Return a model's prediction as every report shows it; to measure the tail, the model runs once more."""
    prediction = result.prediction
    return PredictionEntry(
        **{name: getattr(prediction, name) for name in PredictionFigures.__struct_fields__},
        cpi_stack={stall.value: cycles for stall, cycles in prediction.cpi_stack.items()},
        bounds=dict(prediction.bounds_cycles),
        pipes=make_pipe_entries(result.model_input.demand),
        basis=prediction.basis.value,
        transferred=transferred,
        assumptions=(
            *(_make_transfer_notes(result.model_input) if transferred else ()),
            *prediction.assumptions,
            *_make_verification_notes(result.model_input),
        ),
        tail_share=measure_tail_share(result) if measures_tail else None,
        speed_of_light=make_speed_of_light_entry(result),
    )


def _make_transfer_notes(model_input: ModelInput) -> tuple[str, ...]:
    arch, target = model_input.kernel.arch, model_input.gpu.file.arch
    if not arch:
        return (f"architecture not known: the code is assumed to be {target} code",)
    return (
        f"{arch} code taken instruction by instruction to {target}: it does not run there, and a compiler "
        "would write other code",
    )


def _make_verification_notes(model_input: ModelInput) -> tuple[str, ...]:
    """Return a note on deciding figures that are assumed; of tensor rates only the one used most."""
    gpu = model_input.gpu
    if gpu.is_verified:
        return ()
    rate = model_input.dominant_tensor_rate
    used = "" if rate is None else f"tensor.{rate.value}"
    keys = [key for key in gpu.assumed_deciding_keys if not key.startswith("tensor.") or key == used]
    if not keys:
        return ()
    return (f"unverified GPU: figures of {gpu.name} that decide times are assumed: {', '.join(keys)}",)


def _make_advice_entries(analysis: KernelAnalysis) -> tuple[AdviceEntry, ...]:
    kernel = analysis.kernel
    return tuple(
        AdviceEntry(
            rule=finding.rule,
            finding=finding.message,
            action=finding.action,
            gain_cycles=finding.gain_cycles,
            gain_share=finding.gain_share,
            gain_is_limit=finding.gain_is_limit,
            is_guess=finding.is_guess,
            gain_basis=finding.gain_basis,
            address=None if finding.row is None else int(kernel.addresses[finding.row]),
            opcode="" if finding.row is None else kernel.find_opcode(finding.row).mnemonic,
            source="" if finding.row is None else kernel.find_source_place(finding.row),
            other_addresses=tuple(int(kernel.addresses[row]) for row in finding.other_rows),
        )
        for finding in analysis.findings
    )
