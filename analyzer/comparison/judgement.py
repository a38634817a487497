"""The verdict on a changed kernel: does the change matter?

What is looked at, in this order:

1. Is the basis good enough? Another architecture or model on one side, control codes on one side only,
   opcodes that nobody knows, counts that hang on branches or trips that nobody knows: then only work that
   grew or shrank by a great deal is believed, and the rest is unclear.
2. Predicted cycles beyond `CYCLES_LARGE`: significant, whatever the reason.
3. Predicted cycles beyond `CYCLES_NOISE` with a counter that explains them (sectors, wavefronts, spills,
   executed instructions, CTAs per SM), or with a second model that agrees: significant.
4. Work that moved by `WORK_LARGE` (sectors, wavefronts, spills that are executed) is significant where the
   time does not follow, too: it is hidden in this launch, and need not be in another one.
5. Other counters that moved by as much while the time did not: unclear.
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
# CTAs that an SM holds: one of five or fewer.
OCCUPANCY_LARGE = 0.19
# Requests to local memory that count as spills in executed code, of all executed instructions.
MIN_SPILL_SHARE = 0.005

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
) -> Judgement:
    """Return the verdict on a changed kernel.

    predictions: of both sides, by GPU; second_look: relative change of cycles by another model, by GPU.
    changes: figures that differ; figures: those of both sides that do not depend on a GPU, by name.
    doubts: why the basis is weak; empty where it is good.
    """
    worst = max(predictions, key=lambda each: abs(each.cycles_change), default=None)
    moved = 0.0 if worst is None else worst.cycles_change
    work = [each for each in _list_work(changes, figures, _MEMORY_WORK)]
    other = [each for each in _list_work(changes, figures, _OTHER_WORK)]
    occupancy = [each for each in predictions if each.old_ctas_per_sm != each.new_ctas_per_sm]
    large_work = [each for each in work if each.size >= WORK_LARGE]
    if doubts:
        verdict = (
            Verdict.SIGNIFICANT
            if large_work and not _is_incomparable(predictions, doubts)
            else Verdict.UNCLEAR
        )
        return Judgement(verdict, _order(large_work, doubts, verdict))
    if worst is None:
        return Judgement(Verdict.UNCLEAR, ("no GPU on which both sides are predicted",))
    agrees = _agrees(second_look.get(worst.gpu), moved)
    explained = bool(work or other or occupancy or agrees)
    if abs(moved) >= CYCLES_LARGE or (abs(moved) >= CYCLES_NOISE and explained) or large_work:
        return Judgement(Verdict.SIGNIFICANT, tuple(each.text for each in (*work, *other)))
    hidden = [
        *(each.text for each in (*work, *other) if each.size >= WORK_LARGE),
        *(
            f"{each.old_ctas_per_sm} -> {each.new_ctas_per_sm} CTAs per SM on {each.gpu_name}"
            for each in occupancy
            if abs(each.new_ctas_per_sm - each.old_ctas_per_sm) / max(1, each.old_ctas_per_sm)
            >= OCCUPANCY_LARGE
        ),
    ]
    if hidden:
        note = "the predicted time does not follow, and might in another launch"
        return Judgement(Verdict.UNCLEAR, (*hidden, note))
    return Judgement(Verdict.BENIGN, tuple(each.text for each in (*work, *other)))


class _Work(Struct, frozen=True):
    """A counter of work that moved by so much, relative; infinite where there was none before."""

    text: str
    size: float


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
            found.append(_Work(f"{label} {format_step(change.old, change.new)}", size))
    return found


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


def _agrees(second: float | None, moved: float) -> bool:
    """Return whether another model sees a move in the same direction, beyond noise too."""
    return second is not None and second * moved > 0 and abs(second) >= CYCLES_NOISE


def _is_incomparable(predictions: Sequence[GpuChange], doubts: Sequence[str]) -> bool:
    return any("architecture" in doubt or "other model" in doubt for doubt in doubts)


def _order(work: Sequence[_Work], doubts: Sequence[str], verdict: Verdict) -> tuple[str, ...]:
    told = tuple(each.text for each in work)
    return (*told, *doubts) if verdict is Verdict.SIGNIFICANT else (*doubts, *told)


def measure_second_look(old: Mapping[str, float], new: Mapping[str, float]) -> dict[str, float]:
    """Return the relative change of the cycles of a second model, by GPU."""
    pairs = ((gpu, compute_change(cycles, new.get(gpu))) for gpu, cycles in old.items())
    return {gpu: change for gpu, change in pairs if change is not None}
