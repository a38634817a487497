"""Laws of hardware that every model obeys, tried on the kernels of bench/laws.csv with many edited GPUs.

    python bench/laws.py                                      all laws, models and kernels
    python bench/laws.py --model sm --kernel product --law monotony

| law | what holds |
|---|---|
| homogeneity | all rates and clocks twice, times of a launch half: half the time (1 %) |
| euler | elasticities of rates and clocks less those of times sum to -1 (.1) |
| monotony | a better figure, a larger cache, more SMs: never slower (1 %; of SMs the tail that is named) |
| bound | half of what binds at 95 % costs 60 %; twice gains, or another bound is named |
| idle | what is busy for less than 5 % has no elasticity (.1) |
| names | a copy of the GPU under other names gives the same time |
| accounts | no resource is busy for longer than the launch, the stack sums to the cycles, DRAM and L2 are \
not nearer to the speed of light than they are busy (2 %) |

Launches are counted once; all edits of one run at the clock of the GPU as it is. Prints the violations, the
worst first, and a table of how many there are for each model and law. tests/models/test_laws.py holds them.
"""

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from csv import DictReader
from enum import StrEnum
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

import analyzer
from analyzer.execution.binding.argument_parser import parse_argument
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    PerformanceDirection,
    find_direction,
    list_parameter_keys,
    with_settings,
)
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.scheduling import SM_LEVEL_PIPES, Pipe
from analyzer.models.bounds import DRAM_BOUND, L1_BOUND, L2_BOUND, SHARED_MEMORY_BOUND
from analyzer.models.elasticity import list_relevant_keys
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import list_models
from analyzer.models.speed_of_light import measure_speed_of_light
from analyzer.models.waves import measure_tail_share
from analyzer.pipeline import Options
from analyzer.pipeline.edited_launch import EditedLaunch, predict_unedited
from analyzer.pipeline.gpu_binding import CountedLaunch, Refusal
from analyzer.pipeline.kernel_analyzer import KernelAnalyzer
from analyzer.text.errors import WarplensError

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).with_suffix(".csv")
TOLERANCE = 0.01  # of time
# Models of papers cut a warp's run into intervals where it waits. Where a wait vanishes two intervals become
# one, which hides stalls and queues for units otherwise. And requests of all SMs come at once: more SMs are
# fewer waves, each with a longer queue, of which a wave's own work hides less. So the papers have it.
INTERVAL_MODELS = frozenset({"amali", "gcom", "mdm"})
_INTERVAL_TOLERANCE = 0.12
_EULER_TOLERANCE, _IDLE_ELASTICITY = 0.1, 0.1
_BINDING_SHARE, _IDLE_SHARE, _LEAST_COST = 0.95, 0.05, 0.6
_LIGHT_TOLERANCE, _ROUNDING = 0.02, 1e-6
_STEP, _NO_CHANGE = 1.05, 1e-9
_SM_FACTORS = (0.75, 0.95, 1.0, 1.05, 1.25, 2.0)
# Resources with a rate of their own in time, and costs of a launch: the power of each in a faster machine.
_TIMED_FIGURES: Mapping[str, Mapping[str, int]] = {
    "clock": {"clock.boost_mhz": 1},
    "l2": {"l2.rate": 1},
    "dram": {"dram.rate": 1},
    "launch": {"launch.overhead_us": -1, "launch.ctas_per_us": 1},
}
_LAUNCH_CYCLES = {f"launch.latency.{name}" for name in ("alpha", "beta", "gamma", "intercept_cycles")}

# ---- launches ------------------------------------------------------------------------------------


class LawCase(Struct, frozen=True, kw_only=True):
    """A launch of the table."""

    name: str
    dump: Path
    kernel: str
    gpu: str
    launch: Launch


def read_cases(path: Path = CASES) -> tuple[LawCase, ...]:
    """Return the launches of a table; dumps are paths in traces/."""
    with path.open(encoding="utf-8") as file:
        return tuple(map(_read_case, DictReader(file)))


def _read_case(row: Mapping[str, str]) -> LawCase:
    dynamic, arguments = row["dynamic_shared_bytes"], row["arguments"].split()
    return LawCase(
        name=row["name"],
        dump=ROOT / "traces" / row["dump"],
        kernel=row["kernel"],
        gpu=row["gpu"],
        launch=Launch(
            grid=read_sizes(row["grid"]),
            block=read_sizes(row["block"]),
            dynamic_shared_bytes=int(dynamic) if dynamic else None,
            arguments=tuple(parse_argument(f"{place}={text}") for place, text in enumerate(arguments)),
        ),
    )


def read_sizes(text: str) -> Dim3 | None:
    return Dim3(*map(int, text.split(";"))) if text else None


@cache
def count_case(case: LawCase) -> CountedLaunch:
    """Return the counts of a launch, executed once."""
    options = Options(launch=case.launch, kernels=(case.kernel,))
    (counted,) = KernelAnalyzer(options).count_launches(analyzer.load(str(case.dump))[case.kernel])
    return counted


# ---- a model of one launch -----------------------------------------------------------------------


class Violation(Struct, frozen=True):
    """What a law says against what a model does."""

    law: str
    model: str
    case: str
    edit: str
    found: str
    excess: float  # beyond what the law allows: of time, of an elasticity, or of a share


class Subject:
    """A model and a launch, with the results on edited GPUs."""

    def __init__(self, case: LawCase, model: str) -> None:
        self.case, self.model = case, model
        counted = count_case(case)
        self.edited = EditedLaunch(counted, predict_unedited(counted, load_gpu(case.gpu), model))
        self.base, self.gpu = self.edited.base, self.edited.model_input.gpu
        self.base_us = self.base.prediction.time_us

    def ask(self, settings: Sequence[ParameterSetting]) -> ModelResult | None:
        """Return the result with some figures set; None where they cannot be, or the kernel does not run."""
        gpu = _edit_gpu(self.gpu.key, tuple(settings))
        found = None if gpu is None else self.edited.predict(gpu)
        return None if isinstance(found, Refusal) else found

    def ask_ratio(self, settings: Sequence[ParameterSetting]) -> float | None:
        """Return the time with some figures set over that of the GPU as it is."""
        found = self.ask(settings)
        return None if found is None else found.prediction.time_us / self.base_us

    def make_violation(self, law: "Law", edit: str, found: str, excess: float) -> Violation:
        return Violation(law.value, self.model, self.case.name, edit, found, excess)


@cache
def _edit_gpu(name: str, settings: tuple[ParameterSetting, ...]) -> Gpu | None:
    """Return an edit of a GPU, the same for all models; None where a share would be above one."""
    try:
        return with_settings(load_gpu(name), settings)
    except WarplensError:
        return None


def _scale(key: str, factor: float) -> ParameterSetting:
    return ParameterSetting(key, factor, is_factor=True)


def _improve(key: str, factor: float) -> ParameterSetting:
    less = find_direction(key) is PerformanceDirection.LESS_IS_FASTER
    return _scale(key, 1 / factor if less else factor)


# ---- laws ----------------------------------------------------------------------------------------


@cache
def _read_figures(gpu: str) -> dict[str, float]:
    """Return the figures of a GPU that can be edited by a factor, by key."""
    known = collect_parameters(load_gpu(gpu))
    return {key: known[key].value for key in list_parameter_keys(load_gpu(gpu)) if known[key].value > 0}


def _scale_time(gpu: Gpu, groups: Sequence[str], factor: float) -> list[ParameterSetting]:
    """Return settings that make rates of these groups a factor larger and times as much shorter.

    What a launch takes in cycles is shorter by the clock alone.
    """
    kept = _LAUNCH_CYCLES & _read_figures(gpu.key).keys() if "launch" in groups else ()
    powers = [item for group in groups for item in _TIMED_FIGURES[group].items()]
    return [_scale(key, factor**power) for key, power in (*powers, *((key, 0) for key in sorted(kept)))]


def check_homogeneity(subject: Subject) -> Iterator[Violation]:
    """Yield a violation where a machine that is twice as fast in all does not take half the time."""
    ratio = subject.ask_ratio(_scale_time(subject.gpu, list(_TIMED_FIGURES), 2.0))
    if ratio is not None and (excess := abs(2 * ratio - 1) - TOLERANCE) > 0:
        yield subject.make_violation(Law.HOMOGENEITY, "rates x2, times x0.5", f"time x{ratio:.4f}", excess)


def check_euler(subject: Subject) -> Iterator[Violation]:
    """Yield a violation where the elasticities do not sum to -1."""
    found: dict[str, float] = {}
    for group in _TIMED_FIGURES:
        ends = [subject.ask_ratio(_scale_time(subject.gpu, [group], step)) for step in (_STEP, 1 / _STEP)]
        if ends[0] is None or ends[1] is None:
            return
        found[group] = math.log(ends[0] / ends[1]) / (2 * math.log(_STEP))
    total = sum(found.values())
    if (excess := abs(total + 1) - _EULER_TOLERANCE) > 0:
        shown = " ".join(f"{name} {value:+.2f}" for name, value in found.items())
        yield subject.make_violation(Law.EULER, "elasticities", f"sum {total:.2f}: {shown}", excess)


def check_monotony(subject: Subject) -> Iterator[Violation]:
    """Yield a violation for each figure whose better value costs time, or whose worse one saves some."""
    keys = [
        key
        for key in (*list_relevant_keys(subject.gpu), "l2.size_bytes")
        if key != "sm.count" and key in _read_figures(subject.gpu.key)
    ]
    yield from _check_figures(subject, keys)
    yield from _check_sm_counts(subject)


def _check_figures(subject: Subject, keys: Sequence[str]) -> Iterator[Violation]:
    """Yield the violations of some figures, unless both ends of all of them together are the same time."""
    ratios = {
        factor: subject.ask_ratio(
            [_improve(key, factor) for key in keys if _can_be(subject.gpu, key, factor)]
        )
        for factor in (0.5, 2.0)
    }
    if all(ratio is not None and abs(ratio - 1) < _NO_CHANGE for ratio in ratios.values()):
        return
    if len(keys) > 1:
        middle = len(keys) // 2
        yield from _check_figures(subject, keys[:middle])
        yield from _check_figures(subject, keys[middle:])
        return
    for factor, ratio in ratios.items():
        allowed = _INTERVAL_TOLERANCE if subject.model in INTERVAL_MODELS else TOLERANCE
        excess = 0.0 if ratio is None else (ratio if factor > 1 else 1 / ratio) - 1 - allowed
        if ratio is not None and excess > 0:
            edit = f"{keys[0]} {'better' if factor > 1 else 'worse'}, x2"
            yield subject.make_violation(Law.MONOTONY, edit, f"time {ratio - 1:+.1%}", excess)


def _can_be(gpu: Gpu, key: str, factor: float) -> bool:
    """Return whether a figure can be so much better: a share is 1 at most."""
    setting = _improve(key, factor)
    return not key.endswith("_share") or _read_figures(gpu.key)[key] * setting.value <= 1


def _check_sm_counts(subject: Subject) -> Iterator[Violation]:
    """Yield a violation for each step to more SMs that costs more time than the tail that is named."""
    before_sms, before_us = 0, math.inf
    for factor in _SM_FACTORS:
        n_sms = round(subject.gpu.sm_count * factor)
        found = subject.ask([ParameterSetting("sm.count", float(n_sms))])
        if found is None:
            continue
        prediction, time_us = found.prediction, found.prediction.time_us
        idle = prediction.cpi_stack.get(Stall.IDLE, 0.0) / prediction.cycles  # AMALI's name of a tail
        tail = max(measure_tail_share(found) or 0.0, idle)
        allowed = _INTERVAL_TOLERANCE if subject.model in INTERVAL_MODELS else TOLERANCE
        excess = time_us / before_us - 1 - allowed - tail
        if excess > 0:
            edit, change = (
                f"sms {before_sms} -> {n_sms}",
                f"time {time_us / before_us - 1:+.1%}, tail {tail:.1%}",
            )
            yield subject.make_violation(Law.MONOTONY, edit, change, excess)
        before_sms, before_us = n_sms, time_us


def _list_resource_settings(subject: Subject, name: str, factor: float) -> list[ParameterSetting]:
    """Return settings that make a resource of the bounds faster; none for one that is no figure's."""
    gpu = subject.gpu
    port = "memory.l2_bytes_per_cycle_per_sm"
    keys = {
        DRAM_BOUND: "memory.bandwidth_gbps",
        L2_BOUND: port if gpu.file.l2.bandwidth_gbps is None else "l2.bandwidth_gbps",
        L1_BOUND: "memory.l1_bytes_per_cycle_per_sm",
        SHARED_MEMORY_BOUND: "memory.shared_bytes_per_cycle_per_sm",
    }
    if name in keys:
        return [_scale(keys[name], factor)]
    if name not in {pipe.value for pipe in Pipe} or gpu.arch is None:
        return []
    if name == Pipe.TENSOR.value or Pipe(name) in SM_LEVEL_PIPES:
        return [_scale(f"tensor.{rate.value}.fma_per_cycle_per_sm", factor) for rate in gpu.file.tensor]
    return [
        _scale(f"sched.{sched.value}.issue_cycles", 1 / factor)
        for sched, timing in gpu.arch.sched.items()
        if name in {timing.pipe.value, None if timing.alternate_pipe is None else timing.alternate_pipe.value}
        and f"sched.{sched.value}.issue_cycles" in _read_figures(gpu.key)
    ]


def check_bound(subject: Subject) -> Iterator[Violation]:
    """Yield a violation where half of what binds costs little, or twice of it gains nothing and binds on."""
    prediction = subject.base.prediction
    name, share = prediction.bound, prediction.bounds_cycles.get(prediction.bound, 0.0) / prediction.cycles
    if share < _BINDING_SHARE:
        return
    slower = _list_resource_settings(subject, name, 0.5)
    halved = subject.ask_ratio(slower) if slower else None
    if halved is not None and halved < 1 + _LEAST_COST:
        excess = 1 + _LEAST_COST - halved
        yield subject.make_violation(
            Law.BOUND, f"{name} x0.5", f"{share:.0%} busy: {halved - 1:+.1%}", excess
        )
    doubled = subject.ask(_list_resource_settings(subject, name, 2.0)) if slower else None
    if doubled is None or doubled.prediction.bound != name:
        return
    change = doubled.prediction.time_us / subject.base_us - 1
    if change > -TOLERANCE:
        found = f"{share:.0%} busy: {change:+.1%}, still {name}"
        yield subject.make_violation(Law.BOUND, f"{name} x2", found, change + TOLERANCE)


def check_idle(subject: Subject) -> Iterator[Violation]:
    """Yield a violation for each resource that is hardly used and that the time follows."""
    prediction = subject.base.prediction
    for name, cycles in prediction.bounds_cycles.items():
        share = cycles / prediction.cycles
        slower = _list_resource_settings(subject, name, 1 / _STEP)
        if share >= _IDLE_SHARE or not slower:
            continue
        ends = [subject.ask_ratio(_list_resource_settings(subject, name, _STEP)), subject.ask_ratio(slower)]
        if ends[0] is None or ends[1] is None:
            continue
        elasticity = math.log(ends[0] / ends[1]) / (2 * math.log(_STEP))
        if (excess := abs(elasticity) - _IDLE_ELASTICITY) > 0:
            found = f"{share:.1%} busy: elasticity {elasticity:+.2f}"
            yield subject.make_violation(Law.IDLE, name, found, excess)


def check_names(subject: Subject) -> Iterator[Violation]:
    """Yield a violation where a copy of the GPU under other names takes another time."""
    file = msgspec.structs.replace(subject.gpu.file, name="Copy of a GPU")
    copy = msgspec.structs.replace(subject.gpu, key="copy", file=file)
    ratio = math.exp(subject.edited.measure_change(copy))
    if abs(ratio - 1) > _ROUNDING:
        yield subject.make_violation(Law.NAMES, "a copy", f"time x{ratio:.4f}", abs(ratio - 1))


def check_accounts(subject: Subject) -> Iterator[Violation]:
    """Yield a violation for each share, sum and speed of light that does not fit the cycles."""
    prediction = subject.base.prediction
    for name, cycles in prediction.bounds_cycles.items():
        if (excess := cycles / prediction.cycles - 1) > _ROUNDING:
            yield subject.make_violation(Law.ACCOUNTS, name, f"busy {1 + excess:.1%}", excess)
    total = sum(prediction.cpi_stack.values())
    if prediction.cpi_stack and (excess := abs(total / prediction.cycles - 1)) > _ROUNDING:
        yield subject.make_violation(Law.ACCOUNTS, "stack", f"{total:,.0f} cycles", excess)
    light = measure_speed_of_light(subject.base)
    for level in light.memory:
        if level.level not in prediction.bounds_cycles:
            continue
        busy = prediction.bounds_cycles[level.level] / prediction.cycles
        if (excess := level.peak_share - busy - _LIGHT_TOLERANCE) > 0:
            found = f"{level.peak_share:.1%} of peak, busy {busy:.1%}"
            yield subject.make_violation(Law.ACCOUNTS, f"{level.level} speed of light", found, excess)


class Law(StrEnum):
    """The laws, by the names that `--law` takes."""

    HOMOGENEITY = "homogeneity"
    EULER = "euler"
    MONOTONY = "monotony"
    BOUND = "bound"
    IDLE = "idle"
    NAMES = "names"
    ACCOUNTS = "accounts"


CHECKS: Mapping[Law, Callable[[Subject], Iterator[Violation]]] = {
    Law.HOMOGENEITY: check_homogeneity,
    Law.EULER: check_euler,
    Law.MONOTONY: check_monotony,
    Law.BOUND: check_bound,
    Law.IDLE: check_idle,
    Law.NAMES: check_names,
    Law.ACCOUNTS: check_accounts,
}

# ---- the table -----------------------------------------------------------------------------------


def print_violations(violations: Sequence[Violation], console: Console) -> None:
    """Print each violation, the worst first."""
    table = Table("law", "model", "kernel", "edit", "found", "beyond", box=None)
    for one in sorted(violations, key=lambda one: (one.law, one.model, -one.excess)):
        table.add_row(one.law, one.model, one.case, one.edit, one.found, f"{one.excess:.3f}")
    console.print(table)


def print_counts(violations: Sequence[Violation], models: Sequence[str], console: Console) -> None:
    """Print how many kernels violate each law, by model."""
    kernels = Counter(
        (model, law) for model, law, _ in {(one.model, one.law, one.case) for one in violations}
    )
    table = Table("model", *(law.value for law in Law), box=None)
    for model in models:
        table.add_row(model, *(str(kernels[model, law.value]) for law in Law))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", action="append", choices=sorted(list_models()))
    parser.add_argument("--kernel", default="", help="part of a name in bench/laws.csv")
    parser.add_argument("--law", action="append", choices=[law.value for law in Law])
    arguments = parser.parse_args()
    models = arguments.model or sorted(list_models())
    laws = [Law(name) for name in arguments.law] if arguments.law else list(Law)
    cases = [case for case in read_cases() if arguments.kernel in case.name]
    console, violations = Console(width=180), list[Violation]()
    for case in cases:
        started = time.process_time()
        for model in models:
            subject = Subject(case, model)
            violations += [one for law in laws for one in CHECKS[law](subject)]
        print(f"{case.name}: {time.process_time() - started:.1f} s", file=sys.stderr)
    print_violations(violations, console)
    console.print(f"\nkernels, of {len(cases)}, that violate a law")
    print_counts(violations, models, console)


if __name__ == "__main__":
    main()
