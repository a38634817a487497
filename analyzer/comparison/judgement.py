"""The verdict on a changed kernel: does the change matter?

What is looked at, in this order:

1. Is the basis good enough? Another architecture or model on one side, control codes on one side only,
   opcodes that nobody knows, counts that depend on branches or trips that nobody knows: then only work that
   grew or shrank by a great deal is believed, and the rest is unclear.
2. Predicted cycles beyond `CYCLES_LARGE`: significant, whatever the reason.
3. Predicted cycles beyond `CYCLES_NOISE` with a counter that explains them (sectors, wavefronts, spills,
   executed instructions, CTAs per SM), or with a second model that agrees: significant.
4. Work that moved by `WORK_LARGE` (sectors, wavefronts, spills that are executed) is significant where the
   time does not follow, too: it is hidden in this launch, and need not be in another one.
5. Instructions that moved by `OTHER_WORK_LARGE` in a launch that was assumed, or CTAs per SM by
   `OCCUPANCY_LARGE`, while the time did not: unclear.
6. Else benign: other code that does the same work in the same time.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from analyzer.comparison.wording import compute_change, format_step
from analyzer.report.diff_schema import GpuChange, MetricChange, Verdict

# The simulated schedule of the same work moves by so much when a compiler permutes instructions or registers
# (bench/diff_pairs.py: benign pairs stay below).
CYCLES_NOISE = 0.03
# Beyond, a change of time needs no counter to explain it.
CYCLES_LARGE = 0.10
# Work that explains a change of time, and work that matters by itself.
WORK_MOVED = 0.05
WORK_LARGE = 0.25
# Work that other work hides as a rule, such as index arithmetic in a kernel that DRAM bounds.
OTHER_WORK_LARGE = 0.5
# CTAs that an SM holds: one of five or fewer.
OCCUPANCY_LARGE = 0.19
# Sectors or wavefronts that moved, of all executed instructions; fewer cost no time that could be seen.
MIN_WORK_SHARE = 0.05
# Requests to local memory that count as spills in executed code, of all executed instructions.
MIN_SPILL_SHARE = 0.005

# How doubts begin that make even counts of work incomparable.
INCOMPARABLE = ("another architecture", "times of other models")
# Counters of work that costs a memory path; they never grow unnoticed.
_MEMORY_WORK = ("global_sectors", "shared_wavefronts", "local_sectors")
_OTHER_WORK = ("executed_warp_instructions", "global_requests", "shared_requests")


class Judgement(Struct, frozen=True):
    """The verdict, and the sentences that led to it, the most telling first."""

    verdict: Verdict
    reasons: tuple[str, ...]


def judge_change(
    predictions: Sequence[GpuChange],
    second_look: Mapping[str, float],
    changes: Sequence[MetricChange],
    figures: Mapping[str, tuple[float, float]],
    doubts: Sequence[str],
    *,
    is_launch_assumed: bool,
) -> Judgement:
    """Return the verdict on a changed kernel.

    predictions: of both sides, by GPU; second_look: relative change of cycles by another model, by GPU.
    changes: figures that differ; figures: those of both sides that do not depend on a GPU, by name.
    doubts: why the basis is weak; empty where it is good.
    is_launch_assumed: nobody gave it, so that what hides a change of work may be the launch.
    """
    work = _list_work(changes, figures, _MEMORY_WORK)
    other = _list_work(changes, figures, _OTHER_WORK)
    told = tuple(each.text for each in (*work, *other))
    large_work = any(each.size >= WORK_LARGE and each.matters for each in work)
    if doubts:
        if large_work and not any(doubt.startswith(INCOMPARABLE) for doubt in doubts):
            return Judgement(Verdict.SIGNIFICANT, (*told, *doubts))
        return Judgement(Verdict.UNCLEAR, (*doubts, *told))
    if not predictions:
        return Judgement(Verdict.UNCLEAR, ("no GPU on which both sides are predicted", *told))
    occupancy = [each for each in predictions if each.old_ctas_per_sm != each.new_ctas_per_sm]
    is_explained = bool(work or other or occupancy)
    if large_work or any(_is_significant(each, second_look, is_explained) for each in predictions):
        return Judgement(Verdict.SIGNIFICANT, told)
    unmatched = [
        *(each.text for each in other if is_launch_assumed and each.size >= OTHER_WORK_LARGE),
        *(_describe_occupancy(each) for each in occupancy if _measure_occupancy(each) >= OCCUPANCY_LARGE),
    ]
    if unmatched:
        note = "the predicted time does not follow, and might in another launch"
        return Judgement(Verdict.UNCLEAR, (*unmatched, note))
    return Judgement(Verdict.BENIGN, told)


def _is_significant(change: GpuChange, second_look: Mapping[str, float], is_explained: bool) -> bool:
    """Return whether the time moved beyond what other schedules of the same work do.

    Without a counter that explains it, another model has to see a move in the same direction.
    """
    moved, second = change.cycles_change, second_look.get(change.gpu, 0.0)
    agrees = second * moved > 0 and abs(second) >= CYCLES_NOISE
    return abs(moved) >= CYCLES_LARGE or (abs(moved) >= CYCLES_NOISE and (is_explained or agrees))


def measure_second_look(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """Return the relative change of the cycles of a second model, by GPU."""
    pairs = ((gpu, compute_change(cycles, new.get(gpu))) for gpu, cycles in old.items())
    return {gpu: change for gpu, change in pairs if change is not None}


def _measure_occupancy(change: GpuChange) -> float:
    return abs(change.new_ctas_per_sm - change.old_ctas_per_sm) / max(1, change.old_ctas_per_sm)


def _describe_occupancy(change: GpuChange) -> str:
    return f"{change.old_ctas_per_sm} -> {change.new_ctas_per_sm} CTAs per SM on {change.gpu_name}"


class _Work(Struct, frozen=True):
    """A counter of work that moved by so much, relative; infinite where there was none before."""

    text: str
    size: float
    matters: bool  # beside the executed instructions, or for each request


def _list_work(
    changes: Iterable[MetricChange], figures: Mapping[str, tuple[float, float]], names: Sequence[str]
) -> list[_Work]:
    found = []
    for change in changes:
        if change.metric not in names or change.old is None or change.new is None:
            continue
        size = _measure_move(change, figures)
        if size >= WORK_MOVED:
            label = change.metric.replace("_", " ")
            text = f"{label} {format_step(change.old, change.new)}"
            found.append(_Work(text, size, _matters(change, figures)))
    return found


def _matters(change: MetricChange, figures: Mapping[str, tuple[float, float]]) -> bool:
    """Return whether the counter moved by a share of the executed instructions, or for each request.

    A bank conflict or a stride that appears shows in the second, wherever it is.
    """
    old, new = change.old or 0.0, change.new or 0.0
    executed = max(figures.get("executed_warp_instructions", (0.0, 0.0)))
    if not executed or abs(new - old) >= MIN_WORK_SHARE * executed:
        return True
    requests = figures.get(f"{change.metric.partition('_')[0]}_requests")
    if requests is None or not all(requests):
        return change.metric.startswith("local_")  # spills appear: their share was looked at before
    before, after = old / requests[0], new / requests[1]
    return abs(after - before) >= WORK_MOVED * max(before, after)


def _measure_move(change: MetricChange, figures: Mapping[str, tuple[float, float]]) -> float:
    """Return how far a counter moved, over the smaller of both sides: halving counts as doubling does."""
    old, new = change.old or 0.0, change.new or 0.0
    if change.metric.startswith("local_"):
        executed = max(figures.get("executed_warp_instructions", (0.0, 0.0)))
        requests = max(figures.get("local_requests", (0.0, 0.0)))
        if executed and requests < MIN_SPILL_SHARE * executed:
            return 0.0
    least = min(old, new)
    return abs(new - old) / least if least else float("inf")
