"""The verdict on one kernel: its figures against the baseline's, its budgets, and rules that are forbidden.

A kernel with the code, the launch and the model of the baseline has the baseline's figures, so that it
passes whatever rounding did to them. Otherwise each figure with a threshold is held to it both ways: worse by
more is a regression, better by more an improvement, which `--update` makes the new baseline.
"""

import hashlib
from collections.abc import Iterator, Mapping

from msgspec import UNSET, Struct

from analyzer.checking.change_evidence import list_evidence
from analyzer.checking.limits import Limits
from analyzer.comparison.kernel_metrics import METRICS, Metric, Preference
from analyzer.comparison.normal_names import list_name_forms
from analyzer.report.analyze_schema import KernelReport, WarningEntry
from analyzer.report.baseline_schema import Amount, BaselineKernel
from analyzer.report.check_schema import CheckedKernel, CheckedMetric, Level, Outcome, Violation
from analyzer.report.diff_schema import KernelStatus
from analyzer.text.demangling import demangle

_FINGERPRINT_DIGITS = 32
_MAX_NAME_CHARS = 120
_MAX_SHOWN_EVIDENCE = 3
_ALWAYS_SHOWN = frozenset({"cycles", "time_us", "occupancy", "registers", "shared_bytes", "spill_bytes"})
# What a compiler decides and no model of a GPU does.
_MODEL_FREE = frozenset(
    {
        "registers",
        "shared_bytes",
        "stack_frame_bytes",
        "spill_bytes",
        "spill_store_bytes",
        "spill_load_bytes",
        "instructions",
    }
)
# Of a kernel of a microsecond, a few percent are less than what a measurement of it would tell apart.
_NOISE = {"cycles": 500.0, "time_us": 0.25}
# From the best to the worst.
_OUTCOMES = (Outcome.PASSED, Outcome.IMPROVED, Outcome.OVER_BUDGET, Outcome.REGRESSED)


class Judgement(Struct, frozen=True, kw_only=True):
    """What the gate says of a kernel."""

    kernel: CheckedKernel
    violations: tuple[Violation, ...] = ()
    warnings: tuple[WarningEntry, ...] = ()


class Candidate(Struct, frozen=True, kw_only=True):
    """A kernel of the inputs: its report, what a baseline keeps of it, and its limits."""

    report: KernelReport
    facts: BaselineKernel
    limits: Limits

    def find_gpu_name(self, gpu: str) -> str:
        """Return the name for people of a GPU."""
        names = {entry.gpu: entry.gpu_name for entry in self.report.refused}
        names.update((entry.gpu, entry.gpu_name) for entry in self.report.predictions)
        return names.get(gpu, gpu)

    @property
    def source(self) -> str:
        """Hottest source line, "" where it is not known."""
        return "" if self.report.identity is UNSET else self.report.identity.hottest_source


def judge_alone(candidate: Candidate) -> Judgement:
    """Return the verdict on a kernel where there is no baseline: its budgets."""
    judge = _Judge(candidate, None, is_comparable=True)
    judge.list_figures()
    judge.judge_budgets()
    return judge.finish(KernelStatus.NEW, judge.find_worst_outcome())


def judge_new_kernel(candidate: Candidate, policy: Level | None) -> Judgement:
    """Return the verdict on a kernel that the baseline does not have: its budgets.

    policy: level of the violation that says so; None: there is none.
    """
    judge = _Judge(candidate, None, is_comparable=True)
    judge.list_figures()
    judge.judge_budgets()
    outcome = judge.find_worst_outcome()
    if policy is not None:
        judge.add_violation("new-kernel", policy, "the baseline does not have it")
    return judge.finish(KernelStatus.NEW, Outcome.ADDED if outcome is Outcome.PASSED else outcome)


def judge_known_kernel(candidate: Candidate, old: BaselineKernel, *, is_comparable: bool) -> Judgement:
    """Return the verdict on a kernel that the baseline has.

    is_comparable: the same model made the figures of both; else only those that no model makes are compared.
    """
    new = candidate.facts
    is_equal = old.code == new.code and old.launch == new.launch and old.launch_digest == new.launch_digest
    is_assumed_alike = old.assumed_launch == new.assumed_launch
    missing = () if is_equal else candidate.report.missing_code
    judge = _Judge(candidate, old, is_comparable=is_comparable and is_assumed_alike)
    if missing:
        message = f"it is not compared, since a part of its code is not known: {missing[0]}"
        judge.add_violation("code-unknown", Level.WARNING, message)
    if is_comparable and not is_assumed_alike:
        message = (
            f"its times are not compared, since other launches were assumed ({old.assumed_launch or 'none'} "
            f"in the baseline, {new.assumed_launch or 'none'} now): --launch FILE gives those that you run"
        )
        judge.add_violation("assumed-launch-changed", Level.WARNING, message)
    if missing:
        judge.list_figures()
    else:
        judge.judge_changes(is_equal=is_equal)
    judge.judge_budgets()
    status = KernelStatus.SAME if is_equal else KernelStatus.CHANGED
    if list_name_forms(old.name)[0] != list_name_forms(new.name)[0]:
        status = KernelStatus.RENAMED
    return judge.finish(status, judge.find_worst_outcome())


def judge_removed_kernel(old: BaselineKernel, policy: Level | None) -> Judgement:
    """Return the verdict on a kernel that the inputs do not have any more."""
    kernel = CheckedKernel(
        name=old.name,
        old_name=old.name,
        demangled=demangle(old.name),
        architecture=old.architecture,
        input=old.input,
        status=KernelStatus.REMOVED,
        outcome=Outcome.REMOVED,
        metrics=(),
    )
    violation = None
    if policy is not None:
        violation = Violation(
            rule="removed-kernel",
            level=policy,
            message=f"{shorten_name(kernel.demangled)}: {old.input} does not have it any more",
            kernel=old.name,
            input=old.input,
            fingerprint=_make_fingerprint(old, "removed-kernel", ""),
        )
    return Judgement(kernel=kernel, violations=() if violation is None else (violation,))


def shorten_name(name: str) -> str:
    """Return a demangled name, cut off where it is very long."""
    return name if len(name) <= _MAX_NAME_CHARS else f"{name[: _MAX_NAME_CHARS - 3]}..."


def _make_fingerprint(kernel: BaselineKernel, rule: str, gpu: str) -> str:
    """Return a hash that stays while a violation does: no figures, no lines, no paths of files."""
    parts = (list_name_forms(kernel.name)[0], kernel.architecture, kernel.launch_digest, rule, gpu)
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_FINGERPRINT_DIGITS]


class _Judge:
    """The judgement of one kernel as it grows."""

    __slots__ = ("_candidate", "_is_comparable", "_metrics", "_old", "_violations", "_warnings")

    def __init__(self, candidate: Candidate, old: BaselineKernel | None, *, is_comparable: bool) -> None:
        self._candidate, self._old, self._is_comparable = candidate, old, is_comparable
        self._metrics: list[CheckedMetric] = []
        self._violations: list[Violation] = []
        self._warnings: list[WarningEntry] = []

    def finish(self, status: KernelStatus, outcome: Outcome) -> Judgement:
        """Return the judgement."""
        report, old = self._candidate.report, self._old
        is_same = old is None or status is KernelStatus.SAME or not self._is_comparable
        evidence = (
            () if is_same or old is None else list_evidence(old, self._candidate.facts, self._first_gpu)
        )
        kernel = CheckedKernel(
            name=report.name,
            old_name="" if old is None else old.name,
            demangled=report.demangled,
            architecture=report.architecture,
            input=report.input,
            launch=report.launch,
            status=status,
            outcome=outcome,
            metrics=tuple(self._metrics),
            evidence=evidence,
        )
        return Judgement(kernel=kernel, violations=tuple(self._violations), warnings=tuple(self._warnings))

    @property
    def _first_gpu(self) -> str:
        """GPU whose cycles moved most for the worse."""
        changes = [(-(each.change or 0.0), each.gpu) for each in self._metrics if each.metric == "cycles"]
        return min(changes, default=(0.0, ""))[1]

    def find_worst_outcome(self) -> Outcome:
        """Return the worst outcome of the figures, and of rules that are forbidden."""
        outcomes = [each.outcome for each in self._metrics]
        if self._violations and any(each.level is Level.ERROR for each in self._violations):
            outcomes.append(Outcome.OVER_BUDGET)
        return max(outcomes, key=_OUTCOMES.index, default=Outcome.PASSED)

    def list_figures(self) -> None:
        """List the main figures of a kernel that has no others to be held to."""
        for name in METRICS:
            if name in _ALWAYS_SHOWN:
                for gpu, value in _list_values(self._candidate.facts, METRICS[name]):
                    self._judge_change(METRICS[name], gpu, None, value, is_equal=False)

    def judge_changes(self, *, is_equal: bool) -> None:
        """Hold every figure to its threshold."""
        assert self._old is not None
        new, limits = self._candidate.facts, self._candidate.limits
        for metric in METRICS.values():
            threshold = limits.thresholds.get(metric.name)
            for gpu, value in _list_values(new, metric):
                before = _find_value(self._old, metric, gpu)
                if not self._is_comparable and metric.name not in _MODEL_FREE:
                    before = None
                is_shown = metric.name in _ALWAYS_SHOWN or threshold is not None or before != value
                if not is_shown or (before is None and metric.name not in _ALWAYS_SHOWN):
                    continue
                self._judge_change(metric, gpu, before, value, is_equal=is_equal)
        if self._is_comparable:
            self._judge_lost_figures(self._old)

    def _judge_change(
        self, metric: Metric, gpu: str, before: Amount | None, value: Amount, *, is_equal: bool
    ) -> None:
        """Add one figure, and a violation where it is worse by more than its threshold."""
        threshold = self._candidate.limits.thresholds.get(metric.name)
        outcome, limit = Outcome.PASSED, ""
        if threshold is not None and before is not None:
            more_is_worse = metric.preference is not Preference.MORE
            limit = threshold.format(more_is_worse=more_is_worse)
            worsening = value - before if more_is_worse else before - value
            noise = _NOISE.get(metric.name, 0.0)
            if not is_equal and threshold.is_exceeded(before, worsening, noise):
                outcome = Outcome.REGRESSED
            elif not is_equal and threshold.is_exceeded(before, -worsening, noise):
                outcome = Outcome.IMPROVED
        entry = CheckedMetric(
            metric=metric.name,
            gpu=gpu,
            baseline=before,
            value=value,
            change=(value - before) / before if before else None,
            limit=limit,
            outcome=outcome,
        )
        self._metrics.append(entry)
        if outcome is Outcome.REGRESSED:
            rule = f"{metric.name.replace('_', '-')}-regression"
            self.add_violation(rule, Level.ERROR, self._describe_regression(entry), gpu)

    def _describe_regression(self, entry: CheckedMetric) -> str:
        assert self._old is not None
        metric = METRICS[entry.metric]
        change = "" if entry.change is None else f" {entry.change * 100:+.1f} %"
        where = f" on {self._candidate.find_gpu_name(entry.gpu)}" if entry.gpu else ""
        unit = f" {metric.unit}" if metric.unit else ""
        moved = f"{_format_figure(entry.baseline)} -> {_format_figure(entry.value)}{unit}"
        allowed = f"allowed {entry.limit}" if entry.limit != "0" else "none allowed"
        found = list_evidence(self._old, self._candidate.facts, entry.gpu) if entry.gpu else ()
        reason = f": {'; '.join(found[:_MAX_SHOWN_EVIDENCE])}" if found else ""
        return f"{metric.label}{change}{where} ({moved}, {allowed}){reason}"

    def _judge_lost_figures(self, old: BaselineKernel) -> None:
        """Trip the gate where a GPU that was asked for has cycles in the baseline and none any more."""
        for refusal in self._candidate.report.refused:
            before = _find_value(old, METRICS["cycles"], refusal.gpu)
            if before is None:
                continue
            self._metrics.append(
                CheckedMetric(
                    metric="cycles",
                    gpu=refusal.gpu,
                    baseline=before,
                    value=None,
                    change=None,
                    outcome=Outcome.REGRESSED,
                )
            )
            message = f"no cycles on {refusal.gpu_name} any more: {refusal.reason}"
            self.add_violation("cycles-regression", Level.ERROR, message, refusal.gpu)

    def judge_budgets(self) -> None:
        """Hold figures to their budgets, and rules of advice to being absent."""
        limits = self._candidate.limits
        for budget in limits.budgets.values():
            if budget is None:
                continue
            metric = METRICS[budget.metric]
            values = list(_list_values(self._candidate.facts, metric))
            if not values:
                self._warn_unknown(budget.rule, metric)
            for gpu, value in values:
                is_broken = budget.is_broken(value)
                before = None if self._old is None else _find_value(self._old, metric, gpu)
                self._metrics.append(
                    CheckedMetric(
                        metric=metric.name,
                        gpu=gpu,
                        baseline=before,
                        value=value,
                        change=(value - before) / before if before else None,
                        limit=budget.format(),
                        outcome=Outcome.OVER_BUDGET if is_broken else Outcome.PASSED,
                    )
                )
                if is_broken:
                    where = f" on {self._candidate.find_gpu_name(gpu)}" if gpu else ""
                    unit = f" {metric.unit}" if metric.unit else ""
                    message = (
                        f"{metric.label}{where} {_format_figure(value)}{unit}, allowed {budget.format()}"
                    )
                    self.add_violation(budget.rule, Level.ERROR, message, gpu)
        self._judge_forbidden(limits.forbidden or ())

    def _judge_forbidden(self, rules: tuple[str, ...]) -> None:
        for advice in self._candidate.report.advice:
            if advice.rule in rules:
                most = "at most " if advice.gain_is_limit else ""
                cost = f"{most}{advice.gain_share * 100:.1f} % of the cycles"
                message = f"forbidden: {advice.finding} ({cost})"
                self.add_violation(advice.rule, Level.ERROR, message, source=advice.source)

    def _warn_unknown(self, rule: str, metric: Metric) -> None:
        report = self._candidate.report
        name = shorten_name(report.demangled)
        self._warnings.append(
            WarningEntry(
                code="unknown-figure",
                message=f"{rule} is not held for {name}: its {metric.label} is not known",
                path=report.input,
                line=None,
                count=1,
            )
        )

    def add_violation(
        self, rule: str, level: Level, message: str, gpu: str = "", *, source: str = ""
    ) -> None:
        """Add a violation; `source`: its place, the hottest line where it is not given."""
        candidate = self._candidate
        self._violations.append(
            Violation(
                rule=rule,
                level=level,
                message=f"{shorten_name(candidate.report.demangled)}: {message}",
                kernel=candidate.report.name,
                gpu=gpu,
                input=candidate.report.input,
                source=source or candidate.source,
                fingerprint=_make_fingerprint(candidate.facts, rule, gpu),
            )
        )


def _list_values(kernel: BaselineKernel, metric: Metric) -> Iterator[tuple[str, Amount]]:
    """Yield the known values of a figure with their GPUs, "" where it does not depend on one."""
    sides: Mapping[str, Mapping[str, Amount]] = (
        {gpu: entry.metrics for gpu, entry in kernel.gpus.items()}
        if metric.is_per_gpu
        else {"": kernel.metrics}
    )
    for gpu, figures in sides.items():
        if (value := figures.get(metric.name)) is not None:
            yield gpu, value


def _find_value(kernel: BaselineKernel, metric: Metric, gpu: str) -> Amount | None:
    if not metric.is_per_gpu:
        return kernel.metrics.get(metric.name)
    return kernel.gpus[gpu].metrics.get(metric.name) if gpu in kernel.gpus else None


def _format_figure(value: float | None) -> str:
    """Return `41,200`, `0.25`, `23.4`."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
