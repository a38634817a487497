"""Builds kernels from traces: the executed instructions, as far as a trace records them.

Texts are made of mnemonic and registers. Constants, predicates, offsets and uniform registers are not traced;
`?` represents a result that is missing. A branch that some lanes did not take gets a guard by an unknown
predicate. Branch targets are the observed ones (see `trace_control_flow`).
"""

import re
from collections.abc import Sequence

import numpy as np

from analyzer.frontend.trace_control_flow import TracedControlFlow, observe_control_flow
from analyzer.ir.arrays import IdArray
from analyzer.ir.module import FormTable, InstructionForm, Kernel, KernelResources, Module, SourceFormat
from analyzer.ir.opcode import (
    CONTROL_FLOW_KINDS,
    GLOBAL_SPACES,
    MEMORY_KINDS,
    SHARED_SPACES,
    AddressSpace,
    Opcode,
    OpKind,
)
from analyzer.ir.operand import (
    Address,
    Immediate,
    Operand,
    Predicate,
    PredicateFile,
    Register,
    RegisterFile,
    SpecialOperand,
)
from analyzer.ir.trace import (
    FIRST_UNIFORM_REGISTER,
    ZERO_REGISTER,
    ZERO_UNIFORM_REGISTER,
    Trace,
    TracedInstruction,
)
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.isa.register_operands import find_defs_and_uses
from analyzer.text.source import Diagnostic, Severity

_REQUIRED_RESULT = re.compile(r"r(?!\?)")
_JUMP_KINDS = frozenset({OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL})
_GUARDED_KINDS = frozenset({OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL, OpKind.RETURN, OpKind.EXIT})
_UNKNOWN_GUARD = Predicate(PredicateFile.GENERAL, 7)  # no instruction writes P7, which does not exist
_ADDRESSED_SPACES = GLOBAL_SPACES | SHARED_SPACES | {AddressSpace.LOCAL}


def build_trace_module(path: str, traces: Sequence[Trace]) -> Module:
    """Build a module with a kernel for each trace, in their order."""
    texts = _FormTableBuilder()
    flows = [_observe_flow(trace) for trace in traces]
    columns = [
        [texts.add(form) for form in _build_forms(trace, flow)]
        for trace, flow in zip(traces, flows, strict=True)
    ]
    form_table = texts.build_form_table()
    kernels = tuple(
        _build_kernel(trace, flow, form_table, np.array(ids, dtype=np.int32))
        for trace, flow, ids in zip(traces, flows, columns, strict=True)
    )
    return Module(
        path=path,
        source_format=SourceFormat.TRACE,
        kernels=kernels,
        form_table=form_table,
        diagnostics=(*_warn_rejected_lines(traces), *_warn_unknown_opcodes(kernels)),
        toolchain=_format_toolchain(traces),
        traces=tuple(traces),
    )


class _FormTableBuilder:
    """Maps distinct forms of a module to text ids."""

    def __init__(self) -> None:
        self.forms: dict[str, InstructionForm] = {}
        self.text_ids: dict[str, int] = {}

    def add(self, form: InstructionForm) -> int:
        """Return the text id of a form, a new one if the text is new."""
        self.forms.setdefault(form.text, form)
        return self.text_ids.setdefault(form.text, len(self.text_ids))

    def build_form_table(self) -> FormTable:
        """Return the table of all forms added."""
        opcodes: dict[Opcode, int] = {}
        ids = [opcodes.setdefault(form.opcode, len(opcodes)) for form in self.forms.values()]
        return FormTable(
            texts=tuple(self.forms),
            opcode_ids=np.array(ids, dtype=np.int32),
            opcodes=tuple(opcodes),
            decode=self.forms.__getitem__,
        )


def _observe_flow(trace: Trace) -> TracedControlFlow:
    jumps = [resolve_opcode(instruction.mnemonic).kind in _JUMP_KINDS for instruction in trace.instructions]
    return observe_control_flow(trace, np.array(jumps, dtype=bool))


def _build_forms(trace: Trace, flow: TracedControlFlow) -> list[InstructionForm]:
    forms = []
    for number, instruction in enumerate(trace.instructions):
        opcode = resolve_opcode(instruction.mnemonic)
        target = _find_target(trace, flow, number, opcode)
        forms.append(_build_form(instruction, opcode, target, bool(flow.is_partial[number])))
    return forms


def _find_target(trace: Trace, flow: TracedControlFlow, number: int, opcode: Opcode) -> int | None:
    """Return the address of the target of a direct branch or call, None if none was observed."""
    if opcode.kind not in (OpKind.BRANCH, OpKind.CALL) or trace.instructions[number].sources:
        return None
    seen = flow.targets[number]
    taken = [target for target in seen if target != number + 1] or list(seen)
    return trace.instructions[taken[0]].address if taken else None


def _build_form(
    instruction: TracedInstruction, opcode: Opcode, target: int | None, is_partial: bool
) -> InstructionForm:
    operands = _build_operands(instruction, opcode, target)
    never_taken = opcode.kind is OpKind.BRANCH and target is None and not operands
    guard = _UNKNOWN_GUARD if opcode.kind in _GUARDED_KINDS and (is_partial or never_taken) else None
    written, read = find_defs_and_uses(opcode, guard, operands)
    listed = ", ".join(map(str, operands))
    return InstructionForm(
        text=f"{'@? ' if guard else ''}{instruction.mnemonic} {listed}".rstrip(),
        guard=guard,
        opcode=opcode,
        operands=operands,
        defs=written,
        uses=read,
    )


def _build_operands(
    instruction: TracedInstruction, opcode: Opcode, target: int | None
) -> tuple[Operand, ...]:
    results: list[Operand] = [_build_register(number) for number in instruction.destinations[:1]]
    if not results and _REQUIRED_RESULT.search(opcode.destination_pattern) and instruction.sources:
        results.append(SpecialOperand("?"))  # a uniform register, which is not traced
    sources: list[Operand] = [_build_register(number) for number in instruction.sources]
    n_addresses = 0
    if opcode.space in _ADDRESSED_SPACES and opcode.kind in MEMORY_KINDS:
        n_addresses = 2 if opcode.kind is OpKind.ASYNC_COPY else 1
    for position, number in enumerate(instruction.sources[:n_addresses]):
        sources[position] = _build_address(number, opcode, is_wide=position == n_addresses - 1)
    if target is not None and opcode.kind in CONTROL_FLOW_KINDS:
        sources.append(Immediate(target))
    return (*results, *sources)


def _build_register(number: int) -> Register:
    if number >= FIRST_UNIFORM_REGISTER:
        uniform = None if number == ZERO_UNIFORM_REGISTER else number - FIRST_UNIFORM_REGISTER
        return Register(RegisterFile.UNIFORM, uniform)
    return Register(RegisterFile.GENERAL, None if number == ZERO_REGISTER else number)


def _build_address(number: int, opcode: Opcode, *, is_wide: bool) -> Address:
    """Build a memory operand of a base register; an asynchronous copy has its shared one first."""
    base = _build_register(number)
    if is_wide and opcode.space in GLOBAL_SPACES and "E" in opcode.modifiers and base.index is not None:
        base = Register(base.file, base.index, suffixes=("64",))
    return Address((base,), 0)


def _build_kernel(trace: Trace, flow: TracedControlFlow, form_table: FormTable, text_ids: IdArray) -> Kernel:
    header = trace.header
    addresses = [instruction.address for instruction in trace.instructions]
    indirect = [
        (addresses[number], tuple(addresses[target] for target in flow.targets[number]))
        for number, text in enumerate(text_ids.tolist())
        if form_table.opcodes[int(form_table.opcode_ids[text])].kind is OpKind.BRANCH_INDIRECT
    ]
    return Kernel(
        name=header.name,
        arch=header.arch,
        form_table=form_table,
        text_ids=text_ids,
        addresses=np.array(addresses, dtype=np.int64),
        control_words=None,
        line=1,
        resources=KernelResources(
            registers=header.registers,
            has_exact_registers=header.registers is not None,
            shared_bytes=None if header.shared_bytes is None else 0,
            dynamic_shared_bytes=header.shared_bytes,
            block_threads=header.block.count,
            has_exact_block_threads=True,
        ),
        labels=tuple((f".run_{addresses[leader]:04x}", addresses[leader]) for leader in flow.leaders),
        branch_targets=tuple(indirect),
    )


def _format_toolchain(traces: Sequence[Trace]) -> str:
    versions = sorted({f"NVBit {t.header.nvbit_version}" for t in traces if t.header.nvbit_version})
    return ", ".join(versions)


def _warn_rejected_lines(traces: Sequence[Trace]) -> list[Diagnostic]:
    return [
        Diagnostic(
            Severity.WARNING,
            "trace-header",
            f"{trace.header.name}: the header says {line}, which no kernel has; it is taken as not known",
            hint="give --arch, or trace again",
        )
        for trace in traces
        for line in trace.header.rejected_lines
    ]


def _warn_unknown_opcodes(kernels: Sequence[Kernel]) -> list[Diagnostic]:
    counts: dict[str, int] = {}
    for kernel in kernels:
        for number in kernel.opcode_ids.tolist():
            opcode = kernel.form_table.opcodes[number]
            if not opcode.is_known:
                counts[opcode.name] = counts.get(opcode.name, 0) + 1
    return [
        Diagnostic(
            Severity.WARNING,
            "unknown-opcode",
            f"opcode {name} is not in the table; it is taken as a plain ALU instruction",
            hint="add a line to hwdb/isa/opcodes.toml",
            count=count,
        )
        for name, count in sorted(counts.items())
    ]
