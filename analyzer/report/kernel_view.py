"""A kernel's analysis as its entry of the report."""

from analyzer.demand.demand import PipelineDemand
from analyzer.ir.launch import Dim3
from analyzer.ir.opcode import Opcode, OpKind, Space
from analyzer.ir.operand import Address
from analyzer.ir.program import Kernel
from analyzer.models.base import Situation
from analyzer.models.verdict import Verdict
from analyzer.report.analysis import KernelAnalysis
from analyzer.report.counts_view import count_entries
from analyzer.report.demangle import demangle
from analyzer.report.difference_view import difference_entries
from analyzer.report.listing_view import listing_entries
from analyzer.report.loop_view import loop_entries
from analyzer.report.memory_view import memory_entries, space_entries, traffic_entry
from analyzer.report.pipe_view import pipe_entries
from analyzer.report.report import (
    AdviceEntry,
    KernelReport,
    LaunchEntry,
    PredictionEntry,
    RefusalEntry,
)


def kernel_report(analysis: KernelAnalysis, *, listing: bool = False) -> KernelReport:
    """The report entry of one kernel; `listing` adds a row for each instruction."""
    kernel, mix, first = analysis.kernel, analysis.mix, analysis.first
    demand = first.situation.demand if first else None
    return KernelReport(
        name=kernel.name,
        demangled=demangle(kernel.name),
        architecture=kernel.arch,
        ordinal=analysis.ordinal,
        line=kernel.line,
        instructions=mix.total,
        coverage=mix.coverage,
        has_control_codes=kernel.control_words is not None,
        registers=kernel.resources.registers,
        registers_exact=kernel.resources.registers_exact,
        shared_bytes=kernel.resources.shared_bytes,
        spill_bytes=spill_bytes(kernel),
        launch=_launch(analysis),
        mix=mix.opcodes,
        modifiers=mix.mnemonics,
        constant_operands=mix.constant_operands,
        pipes=pipe_entries(demand),
        bytes=_bytes(demand),
        flops=demand.flops if demand else 0.0,
        tensor_fma=demand.tensor_fma if demand else 0.0,
        arithmetic_intensity=demand.arithmetic_intensity if demand else None,
        counts=count_entries(analysis),
        memory=memory_entries(analysis),
        memory_spaces=space_entries(analysis),
        traffic=traffic_entry(analysis.profile),
        loops=loop_entries(analysis),
        predictions=tuple(
            prediction_entry(v.verdict, v.gpu_name, transferred=v.transferred)
            for v in analysis.verdicts
            if v.verdict
        ),
        refused=tuple(
            RefusalEntry(gpu=v.gpu, gpu_name=v.gpu_name, reason=v.reason)
            for v in analysis.verdicts
            if v.verdict is None
        ),
        advice=_advice(analysis),
        listing=listing_entries(analysis) if listing else (),
        differences=difference_entries(analysis),
    )


def spill_bytes(kernel: Kernel) -> int:
    """Bytes per thread of distinct stack slots that the kernel stores to."""
    vocabulary = kernel.vocabulary
    stores = vocabulary.mask(_stores_local)
    if not stores.any():
        return 0
    slots: dict[str, int] = {}
    for text_id in set(kernel.text_ids[stores[kernel.opcode_ids]].tolist()):
        form = vocabulary.form(text_id)
        address = next((str(o) for o in form.operands if isinstance(o, Address)), "")
        slots[address] = max(slots.get(address, 0), form.opcode.width_bytes)
    return sum(slots.values())


def _stores_local(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.STORE and opcode.space is Space.LOCAL


def _launch(analysis: KernelAnalysis) -> LaunchEntry:
    def triple(dim: Dim3 | None) -> tuple[int, int, int] | None:
        return None if dim is None else (dim.x, dim.y, dim.z)

    launch = analysis.launch
    return LaunchEntry(
        grid=triple(launch.grid),
        block=triple(launch.block),
        cluster=triple(launch.cluster or analysis.kernel.cluster),
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        arguments={str(argument.which): str(argument.value) for argument in launch.arguments},
    )


def _bytes(demand: PipelineDemand | None) -> dict[str, float]:
    if demand is None:
        return {}
    return {
        "global": demand.global_bytes,
        "shared": demand.shared_bytes,
        "local": demand.local_bytes,
    }


def prediction_entry(verdict: Verdict, gpu_name: str, *, transferred: bool) -> PredictionEntry:
    """A model's answer as every report shows it."""
    p = verdict.prediction
    return PredictionEntry(
        gpu=p.gpu,
        gpu_name=gpu_name,
        model=p.model,
        cycles=p.cycles,
        time_us=p.time_us,
        time_us_low=p.time_us_low,
        time_us_high=p.time_us_high,
        bound=p.bound,
        occupancy=p.occupancy,
        occupancy_limiter=p.occupancy_limiter,
        ctas_per_sm=p.ctas_per_sm,
        waves=p.waves,
        clock_mhz=p.clock_mhz,
        cpi_stack={stall.value: cycles for stall, cycles in p.cpi_stack.items()},
        bounds=p.bounds_cycles,
        pipes=pipe_entries(verdict.situation.demand),
        basis=p.basis.value,
        transferred=transferred,
        assumptions=(*(_transfer_notes(verdict.situation) if transferred else ()), *p.assumptions),
    )


def _transfer_notes(situation: Situation) -> tuple[str, ...]:
    note = (
        f"{situation.kernel.arch} code taken instruction by instruction to {situation.gpu.file.arch}: "
        "it does not run there, and a compiler would write other code"
    )
    return (note,)


def _advice(analysis: KernelAnalysis) -> tuple[AdviceEntry, ...]:
    first = analysis.first
    if first is None:
        return ()
    total, kernel = first.prediction.cycles, analysis.kernel
    return tuple(
        AdviceEntry(
            finding=finding.text,
            gain_cycles=finding.gain_cycles,
            gain_share=finding.gain_cycles / total if total else 0.0,
            address=None if finding.row is None else int(kernel.addresses[finding.row]),
            source="" if finding.row is None else str(kernel.origin(finding.row) or ""),
        )
        for finding in analysis.findings
    )
