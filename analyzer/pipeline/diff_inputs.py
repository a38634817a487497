"""The two sides of a comparison: what a toolchain left behind, or a stored report of `analyze`."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import UNSET, Struct

from analyzer.comparison.alignment import find_opcode_name
from analyzer.comparison.code_identity import digest_code, digest_instructions
from analyzer.comparison.kernel_matching import ComparedKernel
from analyzer.comparison.report_identity import digest_reported_code
from analyzer.fingerprint import compute_model_fingerprint
from analyzer.ir.module import KernelResources
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.pipeline.loaded_program import LoadedKernel, Program
from analyzer.report.analyze_schema import KernelReport, Report, WarningEntry
from analyzer.report.diff_schema import DiffSide
from analyzer.report.input_entries import InputFacts, collect_input_facts, make_input_entry
from analyzer.report.report_reader import read_report
from analyzer.text.demangling import demangle
from analyzer.text.errors import InputError
from analyzer.version import __version__

_HEAD_BYTES = 4096
_REPORT_HEAD = re.compile(rb'\s*\{\s*"(?:schema"\s*:|[^{}\[\]]{0,2000}"schema"\s*:\s*"warplens/)')


class SideKernel(Struct, frozen=True, eq=False, dict=True):
    """A kernel of one side: loaded, or the reports on all its launches."""

    name: str
    architecture: str
    input_path: str
    loaded: LoadedKernel | None = None
    reports: tuple[KernelReport, ...] = ()

    @property
    def demangled(self) -> str:
        """Name for people."""
        return demangle(self.name)

    @cached_property
    def digest(self) -> str:
        """Digest of code and resources; "" for a report without a listing."""
        if self.loaded is not None:
            return digest_code(self.loaded.kernel)
        identity = self.reports[0].identity
        return digest_reported_code(self.reports[0]) if identity is UNSET else identity.code

    def make_compared(self) -> ComparedKernel:
        """Return what matching looks at."""
        return ComparedKernel(
            name=self.name,
            architecture=self.architecture,
            digest=self.digest,
            opcodes=self._list_opcodes,
            mix=self._count_opcodes,
        )

    def _list_opcodes(self) -> Sequence[str]:
        if self.loaded is None:
            return [find_opcode_name(entry.instruction) for entry in self.reports[0].listing]
        kernel = self.loaded.kernel
        names = [opcode.mnemonic for opcode in kernel.form_table.opcodes]
        is_nop = kernel.form_table.make_opcode_mask(_is_nop)
        return [names[number] for number in kernel.opcode_ids.tolist() if not is_nop[number]]

    def _count_opcodes(self) -> dict[str, int]:
        if self.loaded is None:
            return dict(self.reports[0].mix)
        return {name: n for name, n in self.loaded.mix.counts_by_opcode.items() if name != "NOP"}


def _is_nop(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.NOP


class DiffInput(Struct, frozen=True, eq=False, dict=True):
    """One side: programs that were loaded, or a report."""

    path: str
    programs: tuple[Program, ...] = ()
    report: Report | None = None

    @cached_property
    def kernels(self) -> tuple[SideKernel, ...]:
        """All kernels in the order of the input. Raises InputError where there is none."""
        found = _list_loaded(self.programs) if self.report is None else _list_reported(self.report)
        if not found:
            raise InputError(f"{self.path}: no kernels", hint="a comparison needs at least one on each side")
        return found

    @cached_property
    def facts(self) -> tuple[InputFacts, ...]:
        """Facts of the programs, with their kernels in the order of `kernels`."""
        return tuple(collect_input_facts(each.module, each.first_ordinal) for each in self.programs)

    @property
    def model_fingerprint(self) -> str:
        """Fingerprint of the model that predicts the side's times."""
        return compute_model_fingerprint() if self.report is None else self.report.model_fingerprint

    def make_entry(self) -> DiffSide:
        """Return the side as the report has it."""
        if self.report is not None:
            return DiffSide(
                inputs=self.report.inputs,
                kernels=len(self.kernels),
                tool_version=self.report.tool_version,
                model_fingerprint=self.report.model_fingerprint,
            )
        return DiffSide(
            inputs=tuple(map(make_input_entry, self.facts)),
            kernels=len(self.kernels),
            tool_version=__version__,
            model_fingerprint=self.model_fingerprint,
        )

    def list_warnings(self) -> tuple[WarningEntry, ...]:
        """Return the warnings of the input's reader."""
        if self.report is not None:
            return self.report.warnings
        return tuple(warning for facts in self.facts for warning in facts.warnings)


def load_diff_input(path: str, load: Callable[[str], Sequence[Program]]) -> DiffInput:
    """Return a side: a JSON file with a schema is read as a report, all else is loaded.

    Raises InputError for a report of another command, and what `load` raises.
    """
    if not is_report_file(path):
        return DiffInput(path, programs=tuple(load(path)))
    report = read_report(path)
    if not isinstance(report, Report):
        raise InputError(
            f"{path}: a report of another command ({report.schema})",
            hint="diff takes reports of `warplens analyze --format json --all`",
        )
    return DiffInput(path, report=report)


def is_report_file(path: str) -> bool:
    """Return whether a file is a JSON object with a schema; False for what cannot be read."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return _REPORT_HEAD.match(file.read(_HEAD_BYTES)) is not None
    except (OSError, ValueError):
        return False


def _list_loaded(programs: Sequence[Program]) -> tuple[SideKernel, ...]:
    return tuple(
        SideKernel(each.name, each.kernel.arch, program.module.path, loaded=each)
        for program in programs
        for each in program.kernels
    )


def _list_reported(report: Report) -> tuple[SideKernel, ...]:
    groups: dict[tuple[object, ...], list[KernelReport]] = {}
    for each in report.kernels:
        groups.setdefault((each.input, each.ordinal, each.name, each.architecture, each.line), []).append(
            each
        )
    return tuple(
        SideKernel(group[0].name, group[0].architecture, group[0].input, reports=tuple(group))
        for group in groups.values()
    )


def has_equal_code(old: SideKernel, new: SideKernel) -> bool:
    """Return whether two kernels are the same for a GPU, in all that both sides know.

    Recorded launches are compared by what they did, whatever the code.
    """
    if old.loaded is None and new.loaded is None:
        return _has_equal_reports(old.reports, new.reports)
    if any(side.loaded is not None and side.loaded.traces for side in (old, new)):
        return False
    if old.digest == new.digest:
        return True
    if old.loaded is None or new.loaded is None:
        return False
    a, b = old.loaded.kernel, new.loaded.kernel
    return (
        a.arch == b.arch
        and (a.cluster == b.cluster or None in (a.cluster, b.cluster))
        and _agrees(a.resources, b.resources)
        and digest_instructions(a) == digest_instructions(b)
    )


def _agrees(old: KernelResources, new: KernelResources) -> bool:
    """Return whether all resources that both sides know are equal; estimated registers are not known."""
    names = (
        "shared_bytes",
        "dynamic_shared_bytes",
        "local_bytes",
        "stack_bytes",
        "barriers",
        "block_threads",
    )
    pairs = [(getattr(old, name), getattr(new, name)) for name in names]
    if old.has_exact_registers and new.has_exact_registers:
        pairs.append((old.registers, new.registers))
    return all(a == b for a, b in pairs if a is not None and b is not None)


def is_equal_code(old: KernelReport, new: KernelReport) -> bool:
    """Return whether the listings of two reports are of equal code; False where one has no listing."""
    return bool(old.listing) and digest_reported_code(old) == digest_reported_code(new)


def _has_equal_reports(old: Sequence[KernelReport], new: Sequence[KernelReport]) -> bool:
    """Return whether stored reports are equal in all that is no name, line or place."""
    return len(old) == len(new) and all(map(_is_equal_report, old, new))


def _is_equal_report(old: KernelReport, new: KernelReport) -> bool:
    if old.listing and new.listing:
        return is_equal_code(old, new) and old.launch == new.launch
    return not old.listing and not new.listing and _strip(old) == _strip(new)


def _strip(report: KernelReport) -> dict[str, object]:
    left_out = {"input", "name", "demangled", "ordinal", "line"}
    return {name: getattr(report, name) for name in report.__struct_fields__ if name not in left_out}
