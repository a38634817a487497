"""What changed between two inputs, and whether it matters.

Kernels are matched first (`comparison.kernel_matching`). Those with equal code are done with; only the others
are analyzed, both sides with the same launch, and compared (`comparison.kernel_comparison`). So a library of
a thousand kernels in which one changed takes as long as it takes to read it, and the analysis of two kernels.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.comparison.kernel_comparison import compare_reports
from analyzer.comparison.kernel_matching import KernelMatch, MatchReason, match_kernels
from analyzer.execution.binding.argument_parser import make_argument, parse_value
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_gpus, find_typical_gpus
from analyzer.ir.launch import Dim3, LaunchTable
from analyzer.ir.launch import Launch as CheckedLaunch
from analyzer.ir.module import Kernel
from analyzer.pipeline.analysis import with_launch
from analyzer.pipeline.assumed_launch import assume_pair_launches
from analyzer.pipeline.diff_inputs import (
    DiffInput,
    SideKernel,
    has_equal_code,
    is_equal_code,
    load_diff_input,
)
from analyzer.pipeline.input_index import load_for_gpus
from analyzer.pipeline.kernel_analyzer import find_launches
from analyzer.pipeline.kernel_choice import assign_gpus, make_no_kernel_error
from analyzer.pipeline.kernel_runner import KernelRunner, KernelTask
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.pipeline.options import Options
from analyzer.pipeline.python_launch import Launch
from analyzer.pipeline.report_assembly import find_unused_launches
from analyzer.report.analyze_schema import KernelReport, WarningEntry
from analyzer.report.diff_schema import (
    DIFF_SCHEMA,
    DiffReport,
    DiffTotals,
    KernelDiff,
    KernelStatus,
    Verdict,
)
from analyzer.report.input_entries import make_unused_launch_warnings
from analyzer.text.kernel_names import find_matching_names
from analyzer.text.progress import ProgressCallback, ignore_progress
from analyzer.version import __version__

# The first one is compared; the second one, which computes its schedule in another way, tells noise.
_MODELS = ("sm", "steady")
_EQUAL_CODE = "the same instructions, control codes and resources"
_EQUAL_REPORT = "equal in every figure"
_Reports = tuple[KernelReport, ...]
_VERDICT_ORDER = {
    Verdict.SIGNIFICANT: 0,
    Verdict.UNCLEAR: 1,
    Verdict.BENIGN: 2,
    Verdict.UNCHANGED: 3,
}


def diff(
    old: str | Program,
    new: str | Program,
    gpu: str | Sequence[str] | None = None,
    *,
    launch: Launch | CheckedLaunch | None = None,
    options: Options | None = None,
) -> DiffReport:
    """Compare two inputs: paths as `analyze` takes them, loaded programs, or JSON reports of `analyze`.

    gpu: name, alias or TOML path, or several; None for the typical one of the architecture.
    launch: of both sides, in place of `options.launch`; what it leaves open is assumed.
    Raises InputError, HardwareError or UsageError.
    """
    options = with_launch(options or Options(), launch)
    sides = [
        DiffInput(each.module.path, programs=(each,))
        if isinstance(each, Program)
        else load_diff_input(each, lambda path: load_for_gpus(path, gpu, options))
        for each in (old, new)
    ]
    return diff_inputs(sides[0], sides[1], gpu, options)


def diff_inputs(
    old: DiffInput,
    new: DiffInput,
    gpu: str | Sequence[str] | None,
    options: Options,
    progress: ProgressCallback = ignore_progress,
) -> DiffReport:
    """Compare two loaded sides. Raises HardwareError or UsageError."""
    return _Comparison(old, new, find_gpus(gpu), options, progress).make_report()


class _Pair(Struct, frozen=True, eq=False):
    """A kernel on both sides, or on one."""

    old: SideKernel | None
    new: SideKernel | None
    match: KernelMatch | None = None

    @property
    def status(self) -> KernelStatus:
        """How the kernel relates to the other side."""
        if self.old is None:
            return KernelStatus.NEW
        if self.new is None:
            return KernelStatus.REMOVED
        if self.match is not None and self.match.reason is not MatchReason.NAME:
            return KernelStatus.RENAMED
        return KernelStatus.CHANGED


class _Comparison:
    """Comparison of two sides."""

    def __init__(
        self,
        old: DiffInput,
        new: DiffInput,
        gpus: tuple[Gpu, ...],
        options: Options,
        progress: ProgressCallback,
    ) -> None:
        self.old, self.new, self.gpus, self.progress = old, new, gpus, progress
        has_report = old.report is not None or new.report is not None
        self.options = replace(
            options,
            listing=True,
            advice=True,
            is_brief=True,
            models=options.models or _find_stored_models(old, new) or _MODELS,
            assumes_launch=not has_report,
            shares_steps=False,
            explain=False,
        )
        self.notes: list[str] = []

    def make_report(self) -> DiffReport:
        """Return the whole report."""
        pairs = self._choose(self._match())
        equal = [pair for pair in pairs if pair.old and pair.new and has_equal_code(pair.old, pair.new)]
        is_equal = set(map(id, equal))
        changed = [p for p in pairs if p.old is not None and p.new is not None and id(p) not in is_equal]
        if not equal and not changed:
            self.notes.append("the two sides have no kernel in common")
        kernels = [
            *(_make_equal_entry(pair) for pair in equal),
            *self._compare(changed),
            *(_make_lone_entry(pair) for pair in pairs if pair.old is None or pair.new is None),
        ]
        self._note_models()
        kernels.sort(key=_rank)
        return DiffReport(
            schema=DIFF_SCHEMA,
            tool_version=__version__,
            model_fingerprint=compute_model_fingerprint(),
            old=self.old.make_entry(),
            new=self.new.make_entry(),
            gpus=tuple(dict.fromkeys(each.gpu for kernel in kernels for each in kernel.predictions)),
            kernels=tuple(kernels),
            totals=_sum_totals(kernels),
            notes=tuple(dict.fromkeys(self.notes)),
            warnings=tuple(self._list_warnings()),
        )

    def _match(self) -> list[_Pair]:
        """Return the kernels of both sides in pairs, those of the new side in its order, then the removed."""
        olds, news = self._list_side(self.old), self._list_side(self.new)
        matches = match_kernels([k.make_compared() for k in olds], [k.make_compared() for k in news])
        by_new = {match.new: match for match in matches}
        pairs = [
            _Pair(olds[by_new[at].old], kernel, by_new[at]) if at in by_new else _Pair(None, kernel)
            for at, kernel in enumerate(news)
        ]
        matched = {match.old for match in matches}
        return [*pairs, *(_Pair(kernel, None) for at, kernel in enumerate(olds) if at not in matched)]

    def _list_side(self, side: DiffInput) -> list[SideKernel]:
        """Return the kernels of a side; of versions for several architectures those that the GPUs take."""
        if not self.gpus or side.report is not None:
            return list(side.kernels)
        facts = [kernel for each in side.facts for kernel in each.kernels]
        kept = {id(kernel) for kernel, _ in assign_gpus(facts, self.gpus)}
        return [kernel for kernel, fact in zip(side.kernels, facts, strict=True) if id(fact) in kept]

    def _choose(self, pairs: list[_Pair]) -> list[_Pair]:
        """Return the pairs that `options.kernels` name on either side. Raises UsageError for an idle name."""
        if not self.options.kernels:
            return pairs
        names = [kernel.name for pair in pairs for kernel in (pair.old, pair.new) if kernel is not None]
        owners = [
            at for at, pair in enumerate(pairs) for kernel in (pair.old, pair.new) if kernel is not None
        ]
        chosen = set[int]()
        for pattern in self.options.kernels:
            found = find_matching_names(names, pattern)
            if not found:
                raise make_no_kernel_error(pattern, names)
            chosen.update(owners[index] for index in found)
        return [pair for at, pair in enumerate(pairs) if at in chosen]

    def _compare(self, pairs: Sequence[_Pair]) -> Iterator[KernelDiff]:
        """Yield the entries of pairs whose code differs, one for each launch."""
        reports = self._analyze(pairs)
        with_listing = bool(self.options.kernels)
        for pair, (olds, news) in zip(pairs, reports, strict=True):
            notes = tuple(self._describe_pair(pair, len(olds), len(news)))
            for old, new in zip(olds, news, strict=False):
                if _is_stored_on_one_side(pair) and is_equal_code(old, new):
                    yield _make_equal_entry(pair)
                    continue
                yield compare_reports(
                    old,
                    new,
                    pair.status,
                    fingerprints=(self.old.model_fingerprint, self.new.model_fingerprint),
                    notes=notes,
                    with_listing=with_listing,
                )

    def _analyze(self, pairs: Sequence[_Pair]) -> list[tuple[_Reports, _Reports]]:
        """Return the reports on all launches of both sides of each pair; stored ones as they are."""
        tables = self._share_launches(pairs)
        sides = []
        for name, table in zip(("old", "new"), tables, strict=True):
            kernels = [getattr(pair, name) for pair in pairs]
            others = [pair.new if name == "old" else pair.old for pair in pairs]
            sides.append(self._analyze_side(kernels, others, replace(self.options, launch_table=table)))
        return list(zip(sides[0], sides[1], strict=True))

    def _analyze_side(
        self, kernels: Sequence[SideKernel], others: Sequence[SideKernel | None], options: Options
    ) -> list[_Reports]:
        tasks, counts = [], []
        for kernel, other in zip(kernels, others, strict=True):
            if kernel.loaded is not None:
                tasks.append(KernelTask(kernel.loaded, self._find_gpus(kernel, other)))
                traces = len(kernel.loaded.traces)
                counts.append(traces or len(find_launches(kernel.loaded.kernel, options)))
        results = KernelRunner(tasks, options, self.progress).run()
        reports = (report for result in results for report in result.reports)
        sizes = iter(counts)
        return [
            kernel.reports if kernel.loaded is None else tuple(next(reports) for _ in range(next(sizes)))
            for kernel in kernels
        ]

    def _find_gpus(self, kernel: SideKernel, other: SideKernel | None) -> tuple[Gpu, ...]:
        """Return the GPUs of a pair: those given, of a stored report, else of both architectures."""
        if self.gpus:
            return self.gpus
        if other is not None and other.reports:
            names = tuple(dict.fromkeys(p.gpu for report in other.reports for p in report.predictions))
            return find_gpus(names) if names else ()
        archs = dict.fromkeys(each.architecture for each in (other, kernel) if each is not None)
        if other is not None and not self._is_new(other):
            archs = dict.fromkeys(reversed(archs))
        return tuple({gpu.key: gpu for arch in archs for gpu in find_typical_gpus(arch)}.values())

    def _is_new(self, kernel: SideKernel) -> bool:
        return any(kernel is each for each in self.new.kernels)

    def _share_launches(self, pairs: Sequence[_Pair]) -> tuple[LaunchTable | None, LaunchTable | None]:
        """Return the launch tables of both sides, with what is assumed for one side assumed for the other."""
        own = self.options.launch_table
        entries: tuple[dict[str, tuple[CheckedLaunch, ...]], ...] = ({}, {})
        for pair in pairs:
            assert pair.old is not None
            assert pair.new is not None
            sides = self._find_pair_launches(pair.old, pair.new)
            for kernel, launches, table in zip((pair.old, pair.new), sides, entries, strict=True):
                if launches:
                    table.setdefault(kernel.name, launches)
        old, new = (
            own if not table else LaunchTable((*table.items(), *(() if own is None else own.entries)))
            for table in entries
        )
        return old, new

    def _find_pair_launches(
        self, old: SideKernel, new: SideKernel
    ) -> tuple[tuple[CheckedLaunch, ...], tuple[CheckedLaunch, ...]]:
        """Return the launches of both sides that replace what each side's own rules give; empty: none do."""
        if old.loaded is not None and new.loaded is not None:
            if old.loaded.traces or new.loaded.traces:
                return (), ()
            return _assume_alike(old.loaded, new.loaded, self.options)
        stored = new if old.loaded is not None else old
        launches = tuple(_make_stored_launch(report) for report in stored.reports)
        return (launches, ()) if old.loaded is not None else ((), launches)

    def _describe_pair(self, pair: _Pair, n_old: int, n_new: int) -> Iterator[str]:
        assert pair.old is not None
        assert pair.new is not None
        match = pair.match
        if pair.old.name != pair.new.name:
            why = (
                ""
                if match is None or match.reason is not MatchReason.SIMILAR_CODE
                else (f", matched by its code ({match.similarity:.0%} of the opcodes alike)")
            )
            yield f"was {pair.old.demangled}{why}"
        if n_old != n_new:
            n = min(n_old, n_new)
            yield f"{n_old} launches on the old side, {n_new} on the new one: the first {n} compared"
        if pair.old.loaded is not None and pair.new.loaded is not None:
            yield from self._describe_parameters(pair.old.loaded.kernel, pair.new.loaded.kernel)

    def _describe_parameters(self, old: Kernel, new: Kernel) -> Iterator[str]:
        """Yield what changed in the parameters, and a note where arguments were given by position."""
        before, after = _list_parameter_sizes(old), _list_parameter_sizes(new)
        if before is None or after is None or before == after:
            return
        yield f"parameters of {' '.join(map(str, before))} bytes -> {' '.join(map(str, after))} bytes"
        if any(str(argument.parameter).strip().isdecimal() for argument in self.options.launch.arguments):
            self.notes.append(
                f"the parameters of {new.name} changed: an argument given by position may name another one "
                "on each side; give names, or compare reports made with a launch for each"
            )

    def _note_models(self) -> None:
        if self.old.model_fingerprint != self.new.model_fingerprint:
            self.notes.append(
                "the sides were predicted by different models (fingerprints "
                f"{self.old.model_fingerprint[:12] or 'unknown'} and "
                f"{self.new.model_fingerprint[:12] or 'unknown'}): a change of time may be the model's"
            )

    def _list_warnings(self) -> Iterator[WarningEntry]:
        yield from dict.fromkeys((*self.old.list_warnings(), *self.new.list_warnings()))
        facts = (*self.old.facts, *self.new.facts)
        if facts:
            yield from make_unused_launch_warnings(find_unused_launches(facts, self.options))


def _find_stored_models(*sides: DiffInput) -> tuple[str, ...]:
    """Return the models of a stored report, by which the other side is predicted too."""
    reports = [report for side in sides if side.report is not None for report in side.report.kernels]
    return tuple(dict.fromkeys(each.model for report in reports for each in report.predictions))


def _is_stored_on_one_side(pair: _Pair) -> bool:
    return pair.old is not None and pair.new is not None and bool(pair.old.reports) != bool(pair.new.reports)


def _assume_alike(
    old: LoadedKernel, new: LoadedKernel, options: Options
) -> tuple[tuple[CheckedLaunch, ...], tuple[CheckedLaunch, ...]]:
    """Return the launches of both sides, with what is left open assumed alike."""
    given = replace(options, assumes_launch=False)
    launches = zip(find_launches(old.kernel, given), find_launches(new.kernel, given), strict=False)
    pairs = [assume_pair_launches(old, new, pair) for pair in launches]
    return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)


def _make_stored_launch(report: KernelReport) -> CheckedLaunch:
    """Return the launch of a stored report. Raises UsageError for arguments that are not at hand any more."""
    launch = report.launch
    return CheckedLaunch(
        grid=None if launch.grid is None else Dim3(*launch.grid),
        block=None if launch.block is None else Dim3(*launch.block),
        cluster=None if launch.cluster is None else Dim3(*launch.cluster),
        dynamic_shared_bytes=launch.dynamic_shared_bytes,
        arguments=tuple(
            make_argument(which, parse_value(value)) for which, value in launch.arguments.items()
        ),
    )


def _list_parameter_sizes(kernel: Kernel) -> tuple[int, ...] | None:
    """Return the sizes of the parameters, in bytes; None where they are not known."""
    if kernel.parameters is not None:
        return tuple(each.size_bytes for each in kernel.parameters)
    if kernel.signature is not None:
        return tuple(each.size_bytes for each in kernel.signature)
    return None


def _make_equal_entry(pair: _Pair) -> KernelDiff:
    assert pair.old is not None
    assert pair.new is not None
    is_renamed = pair.status is KernelStatus.RENAMED
    has_code = bool(pair.new.loaded is not None or pair.new.digest)
    return KernelDiff(
        name=pair.new.name,
        old_name=pair.old.name,
        demangled=pair.new.demangled,
        old_demangled=pair.old.demangled,
        architecture=pair.new.architecture,
        old_architecture=pair.old.architecture,
        input=pair.new.input_path,
        old_input=pair.old.input_path,
        status=KernelStatus.RENAMED if is_renamed else KernelStatus.SAME,
        verdict=Verdict.UNCHANGED,
        cycles_change=0.0,
        evidence=(
            _EQUAL_CODE if has_code else f"{_EQUAL_REPORT}; the reports have no listing to compare",
            *((f"was {pair.old.demangled}",) if pair.old.name != pair.new.name else ()),
        ),
    )


def _make_lone_entry(pair: _Pair) -> KernelDiff:
    kernel = pair.new or pair.old
    assert kernel is not None
    is_new = pair.new is not None
    return KernelDiff(
        name=kernel.name,
        old_name="" if is_new else kernel.name,
        demangled=kernel.demangled,
        old_demangled="" if is_new else kernel.demangled,
        architecture=kernel.architecture,
        old_architecture="" if is_new else kernel.architecture,
        input=kernel.input_path if is_new else "",
        old_input="" if is_new else kernel.input_path,
        status=pair.status,
        verdict=Verdict.UNCLEAR,
        cycles_change=None,
        evidence=(f"no kernel of the {'old' if is_new else 'new'} side is like it",),
    )


def _rank(entry: KernelDiff) -> tuple[object, ...]:
    is_lone = entry.status in (KernelStatus.NEW, KernelStatus.REMOVED)
    moved = max((abs(each.new_cycles - each.old_cycles) for each in entry.predictions), default=0.0)
    order = 2.5 if is_lone else _VERDICT_ORDER[entry.verdict]
    return (order, -moved, entry.status.value, entry.name, entry.architecture)


def _sum_totals(kernels: Sequence[KernelDiff]) -> tuple[DiffTotals, ...]:
    """Return the sums of cycles of changed kernels, by GPU."""
    totals: dict[str, DiffTotals] = {}
    for each in (change for kernel in kernels for change in kernel.predictions):
        before = totals.get(each.gpu)
        old = each.old_cycles + (before.old_cycles if before else 0.0)
        new = each.new_cycles + (before.new_cycles if before else 0.0)
        totals[each.gpu] = DiffTotals(
            gpu=each.gpu,
            gpu_name=each.gpu_name,
            kernels=1 + (before.kernels if before else 0),
            old_cycles=old,
            new_cycles=new,
            cycles_change=(new - old) / old if old else None,
        )
    return tuple(totals.values())
