"""`warplens check`: analyze the inputs, hold each kernel to baseline and budgets, accept what changed."""

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.checking.accepting import accept
from analyzer.checking.baseline_store import (
    StoredBaseline,
    check_baseline_writable,
    hold_baselines,
    read_baselines,
)
from analyzer.checking.check_inputs import CheckInputs, find_inputs
from analyzer.checking.check_report import make_check_report
from analyzer.checking.comparability import (
    find_report_gpus,
    list_clock_notes,
    list_differences,
    list_moves,
    make_head,
    make_refusal,
)
from analyzer.checking.configuration import CheckConfig, find_config
from analyzer.checking.gate import (
    Candidate,
    Judgement,
    judge_alone,
    judge_known_kernel,
    judge_new_kernel,
    judge_removed_kernel,
)
from analyzer.checking.kernel_facts import make_kernel_facts
from analyzer.checking.kernel_matching import Matching, Places, match_kernels
from analyzer.ir.launch import Launch, LaunchTable, Timing
from analyzer.pipeline.cached_analysis import analyze_files
from analyzer.pipeline.entry_store import find_kernel_folder
from analyzer.pipeline.options import Backend, Options
from analyzer.report.analyze_schema import KernelReport, Report, WarningEntry
from analyzer.report.baseline_schema import Baseline, BaselineKernel, BaselineKey
from analyzer.report.check_schema import CheckReport
from analyzer.text.errors import InputError, UsageError
from analyzer.text.kernel_names import list_names_for_people
from analyzer.text.progress import ProgressCallback, ignore_progress

ACCEPT_COMMAND = "warplens check --update"

_CI_VARIABLE = "CI"  # set by GitHub, GitLab, Travis, CircleCI, Buildkite and others
_FALSE_VALUES = frozenset({"", "0", "false", "no"})
_DEFAULT_MODEL = "sm"


class CheckRequest(Struct, frozen=True, kw_only=True):
    """What to check, beside the configuration."""

    config: CheckConfig
    inputs: tuple[str, ...] = ()  # in place of those of the configuration, from the current folder
    updates: bool = False  # write the baseline
    jobs: int = 1
    cache_folder: Path | None = None  # of reports of kernels; None: nothing is kept
    backend: Backend = Backend.LOCAL
    scheduler: str | None = None
    accept_command: str = ACCEPT_COMMAND
    launch: Launch = Launch()  # of kernels that the file of launches does not name


class _Comparison(Struct, frozen=True, kw_only=True):
    """Kernels of the baseline beside those of the inputs."""

    head: Baseline  # what the new figures rest on
    old: tuple[BaselineKernel, ...]  # of inputs that were checked, then of those that are gone
    n_covered: int  # of the former
    candidates: tuple[Candidate, ...]
    matching: Matching
    differences: tuple[str, ...] = ()  # why no figures of the two compare; none where they do
    moves: tuple[str, ...] = ()  # why those of some kernels do not

    @property
    def moved(self) -> frozenset[BaselineKey]:
        """Kernels that were found again and whose input was not checked."""
        return frozenset(self.old[before].key for before, _ in self.all_pairs if before >= self.n_covered)

    @property
    def all_pairs(self) -> tuple[Places, ...]:
        """Pairs that compare, then those that do not."""
        matching = self.matching
        return (*matching.pairs, *matching.moved_launches, *matching.moved_architectures)

    @property
    def removed(self) -> list[BaselineKernel]:
        """Kernels of checked inputs that are gone."""
        return [self.old[index] for index in self.matching.removed if index < self.n_covered]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the baseline is refused; none where it is not."""
        return (*self.differences, *self.moves)

    @property
    def new(self) -> list[BaselineKernel]:
        """What the baseline would keep of the inputs."""
        return [candidate.facts for candidate in self.candidates]


def check(
    inputs: str | Sequence[str] = (),
    *,
    config: str | Path | CheckConfig | None = None,
    baseline: str | Path | None = None,
    gpu: str | Sequence[str] | None = None,
    launch: str | Path | None = None,
    update: bool = False,
    cache: str | Path | bool = True,
    jobs: int = 1,
) -> CheckReport:
    """Hold kernels to a committed baseline and to budgets.

    inputs: paths and globs; those of the configuration where none is given.
    config: a file, or a configuration; else the nearest pyproject.toml or warplens.toml that has one.
    baseline, gpu, launch: in place of the configuration's.
    update: accept what changed, and write the baseline.
    cache: folder of reports of kernels, True for the user's own, False for none.
    A baseline that is not there yet is written.
    Raises InputError, HardwareError or UsageError; a tripped gate is `is_clean` of the report.
    """
    found = (
        config if isinstance(config, CheckConfig) else find_config(None if config is None else Path(config))
    )
    if baseline is not None:
        found = replace(found, baseline=Path(baseline), holds_baseline=True)
    if gpu is not None:
        found = replace(found, gpus=(gpu,) if isinstance(gpu, str) else tuple(gpu))
    if launch is not None:
        found = replace(found, launch=Path(launch))
    paths = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    folder = find_kernel_folder(by_default=True) if cache is True else Path(cache) if cache else None
    return run_check(CheckRequest(config=found, inputs=paths, updates=update, jobs=jobs, cache_folder=folder))


def run_check(
    request: CheckRequest,
    progress: ProgressCallback = ignore_progress,
    cache_notes: list[str] | None = None,
) -> CheckReport:
    """Return the report of a check; write the baseline where that was asked for, or where there is none yet.

    cache_notes: receives sentences on the state of the cache, which are not of the report.
    Raises InputError, HardwareError or UsageError.
    """
    config, path = request.config, request.config.baseline_path
    inputs = find_requested_inputs(request)
    stored = _read_stored(request)
    writes = _writes(request, stored)
    if writes:
        check_baseline_writable(path)
    report = _analyze(request, inputs, progress, cache_notes)
    with hold_baselines(path) if writes else nullcontext():
        if writes:  # another check may have written it meanwhile
            stored = _read_stored(request)
            writes = _writes(request, stored)
        is_first = config.holds_baseline and not stored
        found = _compare(config, report, inputs, stored)
        if found.reasons and not request.updates:
            raise _make_refusal(stored, found, request.accept_command)
        if writes:
            toolchains = _list_toolchains(report, inputs)
            is_folder = config.per_input or path.is_dir()
            kept = _list_kept(stored, inputs, found)
            accept(path, found.head, found.new, toolchains, stored, kept, is_folder=is_folder)
    return make_check_report(
        report,
        _judge(found, config, stored) if stored or writes else list(map(judge_alone, found.candidates)),
        baseline=str(path) if stored or writes else "",
        was_updated=writes,
        accept_command=request.accept_command,
        notes=tuple(
            _list_notes(
                config,
                report,
                inputs,
                stored,
                found,
                is_new=writes and is_first,
                has_launch=request.launch.has_dimensions,
            )
        ),
        warnings=(
            *(_list_first_run_warnings(config) if writes and is_first and not request.updates else ()),
            *_list_warnings(config, report, inputs),
        ),
    )


def find_requested_inputs(request: CheckRequest) -> CheckInputs:
    """Return the inputs of the command line, else those of the configuration. Raises UsageError."""
    config = request.config
    given, folder = (request.inputs, Path()) if request.inputs else (config.inputs, config.folder)
    return find_inputs(given, folder, config.baseline_path.parent)


def _read_stored(request: CheckRequest) -> tuple[StoredBaseline, ...]:
    """Return the baselines that are there. Raises InputError or UsageError."""
    config, path = request.config, request.config.baseline_path
    if not config.holds_baseline:
        if request.updates:
            raise UsageError("--update writes a baseline, and `baseline = false` says that there is none")
        if not config.limits.has_budgets:
            raise UsageError(
                "neither a baseline nor budgets to hold the kernels to",
                hint="set a budget, such as max_registers = 168, or leave out `baseline = false`",
            )
        return ()
    if config.per_input and path.is_file():
        raise UsageError(
            f"{path}: a baseline for each input needs a folder, and this is a file",
            hint="remove it, or name a folder with --baseline",
        )
    return read_baselines(path)


def _writes(request: CheckRequest, stored: Sequence[StoredBaseline]) -> bool:
    """Return whether a check writes the baseline, of which this is stored."""
    is_first = request.config.holds_baseline and not stored
    return request.updates or (is_first and not _is_held_to_budgets_alone(request))


def _is_held_to_budgets_alone(request: CheckRequest) -> bool:
    """Return, where there is no baseline, whether to go on without one rather than to write it."""
    config = request.config
    return _is_in_ci() and not request.updates and config.baseline is None and config.limits.has_budgets


def _is_in_ci() -> bool:
    return os.environ.get(_CI_VARIABLE, "").lower() not in _FALSE_VALUES


def _analyze(
    request: CheckRequest,
    inputs: CheckInputs,
    progress: ProgressCallback,
    cache_notes: list[str] | None,
) -> Report:
    """Return the analysis of all inputs."""
    config = request.config
    forbidden = config.limits.all_forbidden
    options = Options(
        launch=replace(request.launch, timing=Timing.KERNEL),
        launch_table=None if config.launch is None else _load_launches(config.launch),
        assumes_launch=config.assumes_launch,
        identifies=True,
        is_brief=True,
        shares_steps=False,
        cache_folder=request.cache_folder,
        models=(config.model,) if config.model else (),
        advice=bool(forbidden),
        advice_rules=forbidden,
        jobs=request.jobs,
        backend=request.backend,
        scheduler=request.scheduler,
    )
    gpus = config.gpus or None
    paths = [each.path for each in inputs.inputs]
    report = analyze_files(paths, gpus, options, progress, notes=cache_notes)
    if not report.kernels:
        raise InputError("the inputs have no kernels", hint="nothing was checked")
    return report


def _load_launches(path: Path) -> LaunchTable:
    """Return the launches of a file, each timed alone unless the file says otherwise.

    The interval from launch to launch has a floor of some microseconds, under which a small kernel could
    become slower unseen.
    """
    from analyzer.execution.binding.launch_file import load_launch_file

    table = load_launch_file(path)
    return LaunchTable(
        tuple(
            (
                glob,
                tuple(
                    replace(launch, timing=Timing.KERNEL) if launch.timing is Timing.INTERVAL else launch
                    for launch in launches
                ),
            )
            for glob, launches in table.entries
        )
    )


def _compare(
    config: CheckConfig, report: Report, inputs: CheckInputs, stored: Sequence[StoredBaseline]
) -> _Comparison:
    """Match the kernels of a report with those of the baseline."""
    model = config.model or _DEFAULT_MODEL
    head = make_head(report, model, config.gpus, assumed_launch=config.assumes_launch)
    candidates = tuple(_make_candidate(kernel, config, inputs) for kernel in report.kernels)
    owned = [(kernel, each.baseline) for each in stored for kernel in each.baseline.kernels]
    covered = [pair for pair in owned if inputs.is_covered(pair[0].input)]
    gone = [
        pair
        for pair in owned
        if not inputs.is_covered(pair[0].input) and inputs.may_have_moved(pair[0].input)
    ]
    old = tuple(kernel for kernel, _ in (*covered, *gone))
    new = [candidate.facts for candidate in candidates]
    matching = match_kernels(old, new)
    found = _Comparison(
        head=head,
        old=old,
        n_covered=len(covered),
        candidates=candidates,
        matching=matching,
        moves=tuple(list_moves(old, new, matching)),
    )
    owners = [baseline for _, baseline in (*covered, *gone)]
    used = {id(owners[index]): owners[index] for index in range(len(covered))}
    used |= {id(owners[before]): owners[before] for before, _ in found.all_pairs}
    reasons = dict.fromkeys(reason for each in used.values() for reason in list_differences(each, head))
    return replace(found, differences=tuple(reasons))


def _make_candidate(report: KernelReport, config: CheckConfig, inputs: CheckInputs) -> Candidate:
    return Candidate(
        report=report,
        facts=make_kernel_facts(report, inputs.find_name(report.input)),
        limits=config.limits.find_limits(report.name, report.demangled),
    )


def _make_refusal(stored: Sequence[StoredBaseline], found: _Comparison, accept_command: str) -> UsageError:
    new = found.new
    names: tuple[list[str], list[str]] = ([], [])
    for before, after in found.all_pairs:
        names[found.old[before].code != new[after].code].append(new[after].name)
    return make_refusal([each.path for each in stored], found.reasons, *names, accept_command)


def _judge(found: _Comparison, config: CheckConfig, stored: Sequence[StoredBaseline]) -> list[Judgement]:
    """Return the judgement of every kernel against the baseline, or against none that is being written."""
    matching, is_same_basis = found.matching, not found.differences
    judgements = [
        judge_known_kernel(
            found.candidates[after],
            found.old[before],
            is_comparable=is_same_basis and place < len(matching.pairs),
        )
        for place, (before, after) in enumerate(found.all_pairs)
    ]
    new_policy = config.new_kernels if stored else None
    judgements += [judge_new_kernel(found.candidates[index], new_policy) for index in matching.added]
    judgements += [judge_removed_kernel(kernel, config.removed_kernels) for kernel in found.removed]
    return judgements


def _list_kept(
    stored: Sequence[StoredBaseline], inputs: CheckInputs, found: _Comparison
) -> list[list[BaselineKernel]]:
    """Return, for each stored baseline, its kernels of inputs that were not checked, nor found elsewhere."""
    moved = found.moved
    return [
        [
            kernel
            for kernel in each.baseline.kernels
            if not inputs.is_covered(kernel.input) and kernel.key not in moved
        ]
        for each in stored
    ]


def _list_toolchains(report: Report, inputs: CheckInputs) -> dict[str, tuple[str, ...]]:
    """Return the tools that made each input."""
    found: dict[str, set[str]] = {}
    for entry in report.inputs:
        found.setdefault(inputs.find_name(entry.path), set()).update(
            [entry.toolchain] if entry.toolchain else []
        )
    return {name: tuple(sorted(tools)) for name, tools in found.items()}


def _list_notes(
    config: CheckConfig,
    report: Report,
    inputs: CheckInputs,
    stored: Sequence[StoredBaseline],
    found: _Comparison,
    *,
    is_new: bool,
    has_launch: bool,
) -> Iterator[str]:
    """Yield what a reader of the report should know."""
    yield from list_clock_notes(find_report_gpus(report, config.gpus))
    if is_new:
        kernels = f"{len(report.kernels):,} kernel{'s' if len(report.kernels) > 1 else ''}"
        yield f"a new baseline of {kernels}: commit {config.baseline_path}"
    elif config.holds_baseline and not stored:
        yield f"there is no baseline {config.baseline_path}: budgets alone were held"
    for reason in found.reasons:
        yield f"the old baseline did not compare: {reason}"
    before = {entry.path: entry.toolchain for each in stored for entry in each.baseline.inputs}
    for name, tools in sorted(_list_toolchains(report, inputs).items()):
        if name in before and before[name] != tools:
            then, now = (", ".join(each) or "?" for each in (before[name], tools))
            yield f"{name}: made by {now}, of the baseline by {then}"
    kept = sorted({kernel.input for kernels in _list_kept(stored, inputs, found) for kernel in kernels})
    if kept:
        yield f"of the baseline not checked: {list_names_for_people(kept, 3)}"
    if config.assumes_launch and config.launch is None and not has_launch:
        yield "launches that no metadata give are assumed: --launch FILE gives those that you run"


def _list_first_run_warnings(config: CheckConfig) -> Iterator[WarningEntry]:
    """Yield a warning where continuous integration has no baseline: nobody commits what it writes."""
    if _is_in_ci():
        message = (
            "nothing was compared: there was no baseline; write it on your machine and commit it, else each "
            "run of continuous integration is the first one"
        )
        path = str(config.baseline_path)
        yield WarningEntry(code="no-baseline", message=message, path=path, line=None, count=1)


def _list_warnings(config: CheckConfig, report: Report, inputs: CheckInputs) -> Iterator[WarningEntry]:
    """Yield a warning for each glob that fits nothing."""
    where = "" if config.path is None else str(config.path)
    for pattern in inputs.unused:
        yield WarningEntry(
            code="unused-input", message=f"no file fits {pattern}", path=where, line=None, count=1
        )
    names = [(kernel.name, kernel.demangled) for kernel in report.kernels]
    for glob in config.limits.find_unused_globs(names):
        yield WarningEntry(
            code="unused-glob", message=f"no kernel fits match = {glob!r}", path=where, line=None, count=1
        )
