"""Kernels out of traces: the instructions that ran, as far as a trace tells of them.

Texts are put together from name and registers: constants, predicates, offsets and uniform registers are not
traced, and `?` stands for a result that is not. A guard is written where lanes were seen to be off at a
branch; which predicate it is, nobody knows. Branch targets are those seen (see `trace_flow`).
"""

import re
from collections.abc import Sequence

import numpy as np

from analyzer.frontend.trace_flow import TracedFlow, observe_flow
from analyzer.ir.opcode import FLOW_KINDS, GLOBAL_SPACES, MEMORY_KINDS, Opcode, OpKind, Space
from analyzer.ir.operand import (
    Address,
    Immediate,
    Operand,
    Predicate,
    PredicateFile,
    Register,
    RegisterFile,
    Special,
)
from analyzer.ir.program import Dialect, IdArray, InstructionForm, Kernel, Module, Resources, Vocabulary
from analyzer.ir.trace import FIRST_UNIFORM, ZERO_REGISTER, ZERO_UNIFORM, Trace, TracedInstruction
from analyzer.isa.roles import operand_roles
from analyzer.isa.table import resolve
from analyzer.text.source import Diagnostic, Severity

_NEEDS_RESULT = re.compile(r"r(?!\?)")
_JUMPS = frozenset({OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL})
_GUARDED = frozenset({OpKind.BRANCH, OpKind.BRANCH_INDIRECT, OpKind.CALL, OpKind.RETURN, OpKind.EXIT})
_UNKNOWN_GUARD = Predicate(PredicateFile.GENERAL, 7)  # P7 does not exist: no instruction writes it
_ADDRESSED_SPACES = (*GLOBAL_SPACES, Space.SHARED, Space.DISTRIBUTED_SHARED, Space.LOCAL)


def trace_module(path: str, traces: Sequence[Trace]) -> Module:
    """A module with a kernel for each trace, in their order."""
    texts = _Texts()
    flows = [_flow(trace) for trace in traces]
    columns = [
        [texts.add(form) for form in _forms(trace, flow)] for trace, flow in zip(traces, flows, strict=True)
    ]
    vocabulary = texts.vocabulary()
    kernels = tuple(
        _kernel(trace, flow, vocabulary, np.array(ids, dtype=np.int32))
        for trace, flow, ids in zip(traces, flows, columns, strict=True)
    )
    return Module(
        path=path,
        dialect=Dialect.TRACE,
        kernels=kernels,
        vocabulary=vocabulary,
        diagnostics=tuple(_unknown_opcodes(kernels)),
        toolchain=_toolchain(traces),
        traces=tuple(traces),
    )


class _Texts:
    """Distinct forms of a module, by text."""

    def __init__(self) -> None:
        self.forms: dict[str, InstructionForm] = {}
        self.numbers: dict[str, int] = {}

    def add(self, form: InstructionForm) -> int:
        self.forms.setdefault(form.text, form)
        return self.numbers.setdefault(form.text, len(self.numbers))

    def vocabulary(self) -> Vocabulary:
        opcodes: dict[Opcode, int] = {}
        ids = [opcodes.setdefault(form.opcode, len(opcodes)) for form in self.forms.values()]
        return Vocabulary(
            texts=tuple(self.forms),
            opcode_ids=np.array(ids, dtype=np.int32),
            opcodes=tuple(opcodes),
            decode=self.forms.__getitem__,
        )


def _flow(trace: Trace) -> TracedFlow:
    jumps = [resolve(instruction.mnemonic).kind in _JUMPS for instruction in trace.instructions]
    return observe_flow(trace, np.array(jumps, dtype=bool))


def _forms(trace: Trace, flow: TracedFlow) -> list[InstructionForm]:
    forms = []
    for number, instruction in enumerate(trace.instructions):
        opcode = resolve(instruction.mnemonic)
        target = _target(trace, flow, number, opcode)
        forms.append(_form(instruction, opcode, target, bool(flow.is_partial[number])))
    return forms


def _target(trace: Trace, flow: TracedFlow, number: int, opcode: Opcode) -> int | None:
    """Address of the one target of a direct branch or call, None where none was seen."""
    if opcode.kind not in (OpKind.BRANCH, OpKind.CALL) or trace.instructions[number].sources:
        return None
    seen = flow.targets[number]
    taken = [target for target in seen if target != number + 1] or list(seen)
    return trace.instructions[taken[0]].address if taken else None


def _form(
    instruction: TracedInstruction, opcode: Opcode, target: int | None, is_partial: bool
) -> InstructionForm:
    operands = _operands(instruction, opcode, target)
    never_seen = opcode.kind is OpKind.BRANCH and target is None and not operands
    guard = _UNKNOWN_GUARD if opcode.kind in _GUARDED and (is_partial or never_seen) else None
    written, read = operand_roles(opcode, guard, operands)
    listed = ", ".join(map(str, operands))
    return InstructionForm(
        text=f"{'@? ' if guard else ''}{instruction.mnemonic} {listed}".rstrip(),
        guard=guard,
        opcode=opcode,
        operands=operands,
        written=written,
        read=read,
    )


def _operands(instruction: TracedInstruction, opcode: Opcode, target: int | None) -> tuple[Operand, ...]:
    results: list[Operand] = [_register(number) for number in instruction.dests[:1]]
    if not results and _NEEDS_RESULT.search(opcode.writes) and instruction.sources:
        results.append(Special("?"))  # a uniform register, which is not traced
    sources: list[Operand] = [_register(number) for number in instruction.sources]
    n_addresses = 0
    if opcode.space in _ADDRESSED_SPACES and opcode.kind in MEMORY_KINDS:
        n_addresses = 2 if opcode.kind is OpKind.ASYNC_COPY else 1
    for place, number in enumerate(instruction.sources[:n_addresses]):
        sources[place] = _address(number, opcode, is_wide=place == n_addresses - 1)
    if target is not None and opcode.kind in FLOW_KINDS:
        sources.append(Immediate(target))
    return (*results, *sources)


def _register(number: int) -> Register:
    if number >= FIRST_UNIFORM:
        uniform = None if number == ZERO_UNIFORM else number - FIRST_UNIFORM
        return Register(RegisterFile.UNIFORM, uniform)
    return Register(RegisterFile.GENERAL, None if number == ZERO_REGISTER else number)


def _address(number: int, opcode: Opcode, *, is_wide: bool) -> Address:
    """A memory operand by its base register; those of an asynchronous copy are shared first, then global."""
    base = _register(number)
    if is_wide and opcode.space in GLOBAL_SPACES and "E" in opcode.modifiers and base.index is not None:
        base = Register(base.file, base.index, suffixes=("64",))
    return Address((base,), 0)


def _kernel(trace: Trace, flow: TracedFlow, vocabulary: Vocabulary, text_ids: IdArray) -> Kernel:
    header = trace.header
    addresses = [instruction.address for instruction in trace.instructions]
    indirect = [
        (addresses[number], tuple(addresses[target] for target in flow.targets[number]))
        for number, text in enumerate(text_ids.tolist())
        if vocabulary.opcodes[int(vocabulary.opcode_ids[text])].kind is OpKind.BRANCH_INDIRECT
    ]
    return Kernel(
        name=header.name,
        arch=header.arch,
        vocabulary=vocabulary,
        text_ids=text_ids,
        addresses=np.array(addresses, dtype=np.int64),
        control_words=None,
        line=1,
        resources=Resources(
            registers=header.registers,
            registers_exact=header.registers is not None,
            shared_bytes=None if header.shared_bytes is None else 0,
            dynamic_shared_bytes=header.shared_bytes,
            block_threads=header.block.count,
            block_threads_exact=True,
        ),
        labels=tuple((f".run_{addresses[head]:04x}", addresses[head]) for head in flow.heads),
        branch_targets=tuple(indirect),
    )


def _toolchain(traces: Sequence[Trace]) -> str:
    versions = sorted({f"NVBit {t.header.nvbit_version}" for t in traces if t.header.nvbit_version})
    return ", ".join(versions)


def _unknown_opcodes(kernels: Sequence[Kernel]) -> list[Diagnostic]:
    counts: dict[str, int] = {}
    for kernel in kernels:
        for number in kernel.opcode_ids.tolist():
            opcode = kernel.vocabulary.opcodes[number]
            if not opcode.known:
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
