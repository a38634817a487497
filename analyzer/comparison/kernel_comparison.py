"""Two reports of one kernel, before and after a change, become one entry of the diff.

The entry says what changed, whether it matters, and why. It is computed from the two reports alone, so that
kernels analyzed now and those of stored JSON reports are compared alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from analyzer.comparison.alignment import Alignment, align_listings
from analyzer.comparison.code_changes import compare_code, describe_code
from analyzer.comparison.judgement import CYCLES_NOISE, judge_change, measure_second_look
from analyzer.comparison.kernel_metrics import METRICS, list_first_predictions, list_metrics
from analyzer.comparison.wording import (
    compute_change,
    count_things,
    format_amount,
    format_share,
    format_signed,
)
from analyzer.comparison.work_changes import (
    list_access_changes,
    list_line_changes,
    list_loop_changes,
    list_wait_changes,
)
from analyzer.ir.launch import NOBODY_GAVE
from analyzer.report.analyze_schema import AdviceEntry, KernelReport, PredictionEntry
from analyzer.report.diff_schema import (
    AlignedLine,
    FindingChange,
    GpuChange,
    KernelDiff,
    KernelStatus,
    LoopChange,
    MetricChange,
    Verdict,
)
from analyzer.text.source import shorten_source

_MAX_EVIDENCE = 12
_MAX_PLACES = 3
_MIN_ACCESS_MOVE = 0.05  # of sectors or wavefronts per request
_MIN_TOLD_SHARE = 0.01  # of the cycles: of a line, a wait, a loop
_MIN_FINDING_SHARE = 0.03
_METRICS_OF_LIMITERS: Mapping[str, tuple[str, ...]] = {
    "registers": ("registers",),
    "shared": ("shared_bytes", "dynamic_shared_bytes"),
}
_MIN_UNROLL_FACTOR = 1.9
_UNROLL_TOLERANCE = 0.05  # trips that a prologue or a remainder takes
_UNKNOWN_WORK = ("grid", "block", "trips", "branches", "code", "tiles of products")


def compare_reports(
    old: KernelReport,
    new: KernelReport,
    status: KernelStatus,
    *,
    fingerprints: tuple[str, str] = ("", ""),
    notes: Sequence[str] = (),
    with_listing: bool = False,
) -> KernelDiff:
    """Return the entry of a kernel whose code or resources changed.

    fingerprints: of the models that predicted the two sides.
    notes: evidence of the caller, such as how the two were matched; it stands last.
    with_listing: add the aligned listing.
    """
    alignment = align_listings(old.listing, new.listing)
    predictions, changes = _list_gpu_changes(old, new), list_metric_changes(old, new)
    doubts = tuple(_list_doubts(old, new, fingerprints))
    figures = _pair_figures(old, new)
    assumptions = _list_assumptions(old, new)
    judgement = judge_change(
        predictions,
        _look_again(old, new),
        changes,
        figures,
        doubts,
        is_launch_assumed=any(NOBODY_GAVE in each for each in assumptions),
    )
    loops, findings = list_loop_changes(old, new, alignment), _list_finding_changes(old, new)
    code = compare_code(alignment)
    evidence = [
        *(judgement.reasons if judgement.verdict is Verdict.UNCLEAR else ()),
        *_describe_times(predictions, judgement.verdict),
        *(() if predictions else _describe_own_times(old, new)),
        *(() if judgement.verdict is Verdict.UNCLEAR else judgement.reasons),
        *_describe_occupancy(predictions, changes),
        *_describe_spills(changes, figures),
        *_describe_accesses(old, new, alignment),
        *_describe_waits(alignment, predictions),
        *_describe_loops(loops, predictions),
        *_describe_lines(alignment, predictions),
        *(f"{each.side}: {each.finding}" for each in findings if each.gain_share >= _MIN_FINDING_SHARE),
        *(describe_code(code) if old.listing and new.listing else ()),
        *_describe_resources(changes),
        *notes,
    ]
    worst = max(predictions, key=lambda each: abs(each.cycles_change), default=None)
    return KernelDiff(
        name=new.name,
        old_name=old.name,
        demangled=new.demangled,
        old_demangled=old.demangled,
        architecture=new.architecture,
        old_architecture=old.architecture,
        input=new.input,
        old_input=old.input,
        launch=new.launch,
        status=status,
        verdict=judgement.verdict,
        cycles_change=None if worst is None else worst.cycles_change,
        evidence=tuple(dict.fromkeys(evidence))[:_MAX_EVIDENCE],
        predictions=predictions,
        changes=changes,
        findings=findings,
        loops=loops,
        instructions_changed=code.n_changed_lines if old.listing and new.listing else 0,
        source=next((each.source for each in list_line_changes(alignment)), ""),
        assumptions=assumptions,
        listing=make_aligned_lines(alignment) if with_listing else (),
    )


def list_metric_changes(old: KernelReport, new: KernelReport) -> tuple[MetricChange, ...]:
    """Return the figures that differ, in the order of `METRICS`."""
    before = {(each.metric, each.gpu): each.value for each in list_metrics(old)}
    after = {(each.metric, each.gpu): each.value for each in list_metrics(new)}
    order = {name: at for at, name in enumerate(METRICS)}
    keys = sorted({*before, *after}, key=lambda key: (order[key[0]], key[1]))
    return tuple(
        MetricChange(
            metric=metric,
            gpu=gpu,
            old=before.get((metric, gpu)),
            new=after.get((metric, gpu)),
            change=compute_change(before.get((metric, gpu)), after.get((metric, gpu))),
        )
        for metric, gpu in keys
        if before.get((metric, gpu)) != after.get((metric, gpu))
    )


def make_aligned_lines(alignment: Alignment) -> tuple[AlignedLine, ...]:
    """Return the aligned listing as entries of the report."""
    return tuple(
        AlignedLine(
            kind=alignment.classify(pair).value,
            old=None if pair.old is None else alignment.old[pair.old],
            new=None if pair.new is None else alignment.new[pair.new],
        )
        for pair in alignment.pairs
    )


def _pair_figures(old: KernelReport, new: KernelReport) -> dict[str, tuple[float, float]]:
    """Return the figures of both sides that depend on no GPU and that both have."""
    before = {each.metric: each.value for each in list_metrics(old) if not each.gpu}
    after = {each.metric: each.value for each in list_metrics(new) if not each.gpu}
    return {name: (value, after[name]) for name, value in before.items() if name in after}


def _list_gpu_changes(old: KernelReport, new: KernelReport) -> tuple[GpuChange, ...]:
    before = {each.gpu: each for each in list_first_predictions(old)}
    pairs = [(before[each.gpu], each) for each in list_first_predictions(new) if each.gpu in before]
    return tuple(_make_gpu_change(a, b) for a, b in pairs if a.model == b.model)


def _make_gpu_change(old: PredictionEntry, new: PredictionEntry) -> GpuChange:
    return GpuChange(
        gpu=new.gpu,
        gpu_name=new.gpu_name,
        model=new.model,
        old_cycles=old.cycles,
        new_cycles=new.cycles,
        cycles_change=(new.cycles - old.cycles) / old.cycles if old.cycles else 0.0,
        old_time_us=old.time_us,
        new_time_us=new.time_us,
        old_bound=old.bound,
        new_bound=new.bound,
        old_cpi_stack=dict(old.cpi_stack),
        new_cpi_stack=dict(new.cpi_stack),
        old_ctas_per_sm=old.ctas_per_sm,
        new_ctas_per_sm=new.ctas_per_sm,
        old_occupancy_limiter=old.occupancy_limiter,
        new_occupancy_limiter=new.occupancy_limiter,
    )


def _look_again(old: KernelReport, new: KernelReport) -> dict[str, float]:
    """Return the change of cycles by the second model, where one was asked."""
    sides = []
    for report in (old, new):
        first = {(each.gpu, each.model) for each in list_first_predictions(report)}
        others = [each for each in report.predictions if (each.gpu, each.model) not in first]
        sides.append({each.gpu: each.cycles for each in reversed(others)})
    return measure_second_look(*sides)


def _list_doubts(old: KernelReport, new: KernelReport, fingerprints: tuple[str, str]) -> Iterator[str]:
    """Yield the reasons why the two sides cannot be compared well."""
    if old.architecture != new.architecture:
        yield (
            f"another architecture: {old.architecture or '?'} -> {new.architecture or '?'}; the code of one "
            "side does not run on the GPU of the other"
        )
    if fingerprints[0] != fingerprints[1]:
        yield "times of other models on the two sides: analyze both with one version to compare them"
    if old.has_control_codes != new.has_control_codes:
        without = "old" if new.has_control_codes else "new"
        yield f"the {without} side has no control codes: its schedule is assumed"
    if not old.listing or not new.listing:
        without = (
            "neither side has"
            if not old.listing and not new.listing
            else (f"the {'new' if old.listing else 'old'} side does not have")
        )
        yield f"{without} a listing: order of instructions and control codes cannot be compared"
    unknown = [side for side, report in (("old", old), ("new", new)) if report.coverage < 1]
    if unknown and old.coverage != new.coverage:
        yield f"opcodes of the {' and the '.join(unknown)} side are not known: they are costed by assumption"
    yield from _list_count_doubts(old, new)
    for refused, side in ((old.refused, "old"), (new.refused, "new")):
        if refused and old.architecture == new.architecture:
            yield f"the {side} side cannot be predicted on {refused[0].gpu_name}: {refused[0].reason}"


def _list_count_doubts(old: KernelReport, new: KernelReport) -> Iterator[str]:
    executed = [report.counts.executed_warp_instructions for report in (old, new)]
    if executed[0] == executed[1]:
        return
    for report, side in ((old, "old"), (new, "new")):
        unknown = [each for each in report.unknowns if each.what in _UNKNOWN_WORK]
        if unknown:
            settle = ", ".join(option for each in unknown for option in each.settle[:2])
            what = ", ".join(each.what for each in unknown)
            yield f"{what} of the {side} side not known" + (f": give {settle}" if settle else "")
            return


def _describe_times(predictions: Sequence[GpuChange], verdict: Verdict) -> Iterator[str]:
    same = (
        "the same time, since other work hides the change"
        if verdict is Verdict.SIGNIFICANT
        else "the same time within noise"
    )
    for each in sorted(predictions, key=lambda one: -abs(one.cycles_change)):
        word = "slower" if each.cycles_change > 0 else "faster"
        if abs(each.cycles_change) < CYCLES_NOISE:
            word = same
        bound = (
            each.new_bound if each.old_bound == each.new_bound else f"{each.old_bound} -> {each.new_bound}"
        )
        yield (
            f"{word}: {format_amount(each.old_cycles)} -> {format_amount(each.new_cycles)} cycles "
            f"({format_share(each.cycles_change)}) on {each.gpu_name}, bound {bound}"
            + _describe_stall_shift(each)
        )


def _describe_own_times(old: KernelReport, new: KernelReport) -> Iterator[str]:
    """Yield the time of each side on its own GPU, where no GPU runs both."""
    sides = [(name, list_first_predictions(report)) for name, report in (("old", old), ("new", new))]
    told = [
        f"{name} {format_amount(found[0].time_us)} us on {found[0].gpu_name}"
        for name, found in sides
        if found
    ]
    if told:
        yield f"no GPU runs both: {', '.join(told)}"


def _describe_stall_shift(change: GpuChange) -> str:
    """Return the stall that changed most the way the time went, where that is beyond noise."""
    old, new = change.old_cpi_stack, change.new_cpi_stack
    shifts = {name: new.get(name, 0.0) - old.get(name, 0.0) for name in sorted({*old, *new})}
    sign = 1.0 if change.new_cycles >= change.old_cycles else -1.0
    name = max(shifts, key=lambda each: sign * shifts[each], default="")
    if not name or abs(shifts[name]) < CYCLES_NOISE * max(change.old_cycles, 1.0):
        return ""
    return f"; {name} {format_signed(shifts[name])} cycles"


def _describe_occupancy(predictions: Sequence[GpuChange], changes: Sequence[MetricChange]) -> Iterator[str]:
    for each in predictions:
        if each.old_ctas_per_sm == each.new_ctas_per_sm:
            continue
        fewer = each.new_ctas_per_sm < each.old_ctas_per_sm
        limiter = each.new_occupancy_limiter if fewer else each.old_occupancy_limiter
        cause = ", ".join((*_describe_occupancy_cause(limiter, changes), f"limited by {limiter}"))
        yield f"{each.old_ctas_per_sm} -> {each.new_ctas_per_sm} CTAs per SM on {each.gpu_name}: {cause}"


def _describe_occupancy_cause(limiter: str, changes: Sequence[MetricChange]) -> Iterator[str]:
    """Yield how much more or less there is of what limits the CTAs of an SM."""
    names = _METRICS_OF_LIMITERS.get(limiter.partition(" ")[0], ())
    for change in changes:
        if change.metric in names and change.old is not None and change.new is not None:
            moved = change.new - change.old
            metric = METRICS[change.metric]
            amount = f"{format_amount(abs(moved))} {metric.unit} " if metric.unit else f"{abs(moved):.0f} "
            yield f"{amount}{'more' if moved > 0 else 'less' if metric.unit else 'fewer'} {metric.label}"


def _describe_spills(
    changes: Sequence[MetricChange], figures: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    spills = {each.metric: each for each in changes if each.metric.startswith("spill_")}
    if not spills:
        return
    stores, loads = (spills.get(f"spill_{kind}_bytes") for kind in ("store", "load"))
    told = [
        f"{name} {format_amount(each.old or 0)} -> {format_amount(each.new or 0)} B"
        for name, each in (("stores", stores), ("loads", loads))
        if each is not None
    ]
    requests = figures.get("local_requests")
    executed = (
        "" if requests is None else f"; {format_amount(requests[1])} requests to local memory when executed"
    )
    if told:
        yield f"spills: {', '.join(told)}{executed}"


def _describe_accesses(old: KernelReport, new: KernelReport, alignment: Alignment) -> Iterator[str]:
    told = 0
    for each in list_access_changes(old, new, alignment):
        move = abs(each.new_per_request - each.old_per_request) / max(each.old_per_request, 1e-9)
        if move >= _MIN_ACCESS_MOVE and told < _MAX_PLACES:
            told += 1
            what = "touches" if each.unit == "sectors" else "takes"
            amount = format_amount(each.new_per_request)
            unit = each.unit.removesuffix("s") if amount == "1" else each.unit
            yield (
                f"{each.place} {what} {amount} {unit} per request (was {format_amount(each.old_per_request)})"
            )


def _describe_waits(alignment: Alignment, predictions: Sequence[GpuChange]) -> Iterator[str]:
    cycles = max((each.old_cycles for each in predictions), default=0.0)
    for each in list_wait_changes(alignment)[:_MAX_PLACES]:
        change = each.new_cycles - each.old_cycles
        if abs(change) < _MIN_TOLD_SHARE * cycles:
            return
        way = "earlier" if each.moved < 0 else "later"
        yield (
            f"wait of {each.place} for SB{each.scoreboard} of {each.producer} moved "
            f"{count_things(abs(each.moved), 'instruction')} {way}: {format_signed(change)} cycles there"
        )


def _describe_loops(loops: Sequence[LoopChange], predictions: Sequence[GpuChange]) -> Iterator[str]:
    cycles = max((each.old_cycles for each in predictions), default=0.0)
    for each in loops[:_MAX_PLACES]:
        header = each.old_header if each.new_header is None else each.new_header
        place = f"loop at {shorten_source(each.source)}" if each.source else f"loop {header or 0:#x}"
        if each.old_trips is None or each.new_trips is None:
            yield f"{place} is {'new' if each.old_trips is None else 'gone'}"
        elif each.old_trips != each.new_trips:
            was = f"was {format_amount(each.old_trips)}"
            yield f"{place} runs {format_amount(each.new_trips)} times ({was}){_describe_unrolling(each)}"
        elif abs((each.new_cycles or 0.0) - (each.old_cycles or 0.0)) >= CYCLES_NOISE * cycles > 0:
            step = f"{format_amount(each.old_cycles or 0.0)} -> {format_amount(each.new_cycles or 0.0)}"
            yield f"{place}: {step} cycles"


def _describe_unrolling(loop: LoopChange) -> str:
    """Return `, unrolled by 4` for a loop with a quarter of the trips."""
    if not loop.old_trips or not loop.new_trips:
        return ""
    factor = max(loop.old_trips, loop.new_trips) / min(loop.old_trips, loop.new_trips)
    if factor < _MIN_UNROLL_FACTOR or abs(factor - round(factor)) > _UNROLL_TOLERANCE * factor:
        return ""
    return f", {'unrolled' if loop.old_trips > loop.new_trips else 'rolled up'} by {factor:.0f}"


def _describe_lines(alignment: Alignment, predictions: Sequence[GpuChange]) -> Iterator[str]:
    cycles = max((each.old_cycles for each in predictions), default=0.0)
    for each in list_line_changes(alignment)[:_MAX_PLACES]:
        change = each.new_cycles - each.old_cycles
        if cycles and abs(change) >= max(CYCLES_NOISE, _MIN_TOLD_SHARE) * cycles:
            yield (
                f"{shorten_source(each.source)}: {format_signed(change)} cycles, {each.stall} "
                f"{format_signed(each.stall_change)}"
            )


def _describe_resources(changes: Sequence[MetricChange]) -> Iterator[str]:
    for name in ("registers", "shared_bytes", "dynamic_shared_bytes", "stack_frame_bytes"):
        change = next((each for each in changes if each.metric == name), None)
        if change is not None and change.old is not None and change.new is not None:
            yield f"{METRICS[name].label} {format_amount(change.old)} -> {format_amount(change.new)}"


_SideFindings = tuple[Literal["old", "new"], Mapping[str, AdviceEntry], Mapping[str, AdviceEntry]]


def _list_finding_changes(old: KernelReport, new: KernelReport) -> tuple[FindingChange, ...]:
    """Return the rules of advice that apply to one side only, the largest gain first."""
    before, after = {each.rule: each for each in old.advice}, {each.rule: each for each in new.advice}
    sides: tuple[_SideFindings, ...] = (("new", after, before), ("old", before, after))
    found = [
        FindingChange(
            rule=each.rule, side=side, finding=each.finding, source=each.source, gain_share=each.gain_share
        )
        for side, own, others in sides
        for each in own.values()
        if each.rule not in others
    ]
    return tuple(sorted(found, key=lambda each: (-round(each.gain_share, 6), each.rule)))


def _list_assumptions(old: KernelReport, new: KernelReport) -> tuple[str, ...]:
    """Return what the counts of both sides rest on; of one side only with its name."""
    before, after = old.counts.assumptions, new.counts.assumptions
    return (
        *(each for each in after if each in before),
        *(f"new side: {each}" for each in after if each not in before),
        *(f"old side: {each}" for each in before if each not in after),
    )
