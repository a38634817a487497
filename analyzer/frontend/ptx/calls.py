"""Calls of device functions: the body of each callee is put in its place.

Parameters and results pass through variables in the param space of the caller, which become registers: one
for each (variable, byte offset) that an instruction names.

    st.param.b64 [param0+0], %rd1          mov.b64 %param0+0, %rd1
    call (retval0), f, (param0)            ... body of f, whose `ret` goes to the label after it
    ld.param.f32 %f1, [retval0+0]          mov.f32 %f1, %retval0+0

A callee that is not in the file, or that calls itself, is not followed: its results are unknown.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from analyzer.frontend.ptx.statements import (
    PtxAddress,
    PtxBranchTargets,
    PtxFunction,
    PtxGuard,
    PtxInstruction,
    PtxLabel,
    PtxModule,
    PtxOperand,
    PtxRegister,
    PtxStatement,
    PtxSymbol,
    PtxVariable,
    PtxVector,
)

_FAILED_ASSERTION = "__assertfail"  # of the driver: it ends the launch with an error, as a trap does
_MAX_DEPTH = 16
_MAX_STATEMENTS = 1 << 18  # of one kernel with all that it calls


def inline_calls(function: PtxFunction, module: PtxModule) -> PtxFunction:
    """Return the function with the bodies of the functions that it calls."""
    if not any(isinstance(s, PtxInstruction) and s.name == "call" for s in function.statements):
        return function
    return _Inliner(module).run(function)


def branch_around_products(function: PtxFunction) -> PtxFunction:
    """Return the function with a branch around each guarded instruction of the tensor core of sm_100.

    Such an instruction has no guard of lanes: ptxas branches, and warps of which no lane issues it pass by.
    """
    statements: list[PtxStatement] = []
    for statement in function.statements:
        is_product = isinstance(statement, PtxInstruction) and statement.name == "tcgen05"
        guard = statement.guard if isinstance(statement, PtxInstruction) and is_product else None
        if guard is None or not isinstance(statement, PtxInstruction):
            statements.append(statement)
            continue
        end = f"$product@{len(statements)}"
        skip = PtxGuard(guard.register, not guard.is_negated)
        statements += [
            replace(statement, name="bra", modifiers=(), operands=(PtxSymbol(end),), guard=skip),
            replace(statement, guard=None),
            PtxLabel(end, statement.line),
        ]
    return replace(function, statements=tuple(statements))


class _Frame(Struct):
    """One function that is being copied."""

    function: PtxFunction
    suffix: str  # of its registers and labels, "" for the kernel
    parameters: dict[str, str]  # its parameters and results -> variables of the caller
    end: str  # the label after its body, "" for the kernel
    stack: tuple[str, ...]  # functions that are being copied


class _Inliner:
    def __init__(self, module: PtxModule) -> None:
        self.functions = {f.name: f for f in module.functions if not f.is_declaration}
        self.registers: dict[str, str] = {}
        self.variables: list[PtxVariable] = []
        self.out: list[PtxStatement] = []
        self.n_calls = 0
        self.kernel_parameters: frozenset[str] = frozenset()

    def run(self, function: PtxFunction) -> PtxFunction:
        """Copy a kernel and all that it calls."""
        self.kernel_parameters = frozenset(variable.name for variable in function.parameters)
        self._copy(_Frame(function, "", {}, "", (function.name,)))
        return replace(
            function,
            statements=tuple(self.out),
            register_types=self.registers,
            variables=tuple(self.variables),
        )

    def _copy(self, frame: _Frame) -> None:
        names = {name: name + frame.suffix for name in frame.function.register_types}
        for name, type_name in frame.function.register_types.items():
            self.registers[names[name]] = type_name
        locals_ = {v.name: v.name + frame.suffix for v in frame.function.variables if v.space != "param"}
        self.variables += [
            replace(v, name=locals_[v.name]) for v in frame.function.variables if v.name in locals_
        ]
        rename = _Renamer(names, locals_, frame)
        for statement in frame.function.statements:
            if len(self.out) > _MAX_STATEMENTS:
                return
            self._copy_statement(statement, rename, frame)

    def _copy_statement(self, statement: PtxStatement, rename: "_Renamer", frame: _Frame) -> None:
        match statement:
            case PtxLabel(name=name, line=line):
                self.out.append(PtxLabel(name + frame.suffix, line))
            case PtxBranchTargets(name=name, targets=targets):
                self.out.append(
                    PtxBranchTargets(name + frame.suffix, tuple(t + frame.suffix for t in targets))
                )
            case PtxInstruction(name="call"):
                self._copy_call(rename.rename_instruction(statement), statement, frame)
            case PtxInstruction(name="ret") if frame.end:
                self.out.append(
                    replace(
                        rename.rename_instruction(statement),
                        name="bra",
                        modifiers=(),
                        operands=(PtxSymbol(frame.end),),
                    )
                )
            case PtxInstruction():
                self.out += self._replace_parameters(rename.rename_instruction(statement), frame)

    def _replace_parameters(self, instruction: PtxInstruction, frame: _Frame) -> Iterator[PtxInstruction]:
        """Turn accesses to parameters and results of calls to moves of registers."""
        is_access = instruction.name in ("ld", "st") and any(
            word.split("::")[0] == "param" for word in instruction.modifiers
        )
        position = 0 if instruction.name == "st" else 1
        address = instruction.operands[position] if is_access else None
        if not isinstance(address, PtxAddress) or not isinstance(address.base, PtxSymbol):
            yield instruction
            return
        if address.base.name in self.kernel_parameters and not frame.suffix:
            yield instruction
            return
        variable = frame.parameters.get(address.base.name, address.base.name + frame.suffix)
        yield from self._make_moves(instruction, variable, address.offset, instruction.operands[1 - position])

    def _make_moves(
        self, instruction: PtxInstruction, variable: str, offset: int, value: PtxOperand
    ) -> Iterator[PtxInstruction]:
        elements = value.elements if isinstance(value, PtxVector) else (value,)
        type_name = instruction.modifiers[-1]
        for number, element in enumerate(elements):
            place = PtxRegister(f"%{variable}+{offset + number * _count_bytes(type_name)}")
            kind = "b16" if _count_bytes(type_name) < 2 else f"b{8 * _count_bytes(type_name)}"
            self.registers.setdefault(place.name, kind)
            operands = (place, element) if instruction.name == "st" else (element, place)
            yield replace(instruction, name="mov", modifiers=(kind,), operands=operands)

    def _copy_call(self, call: PtxInstruction, original: PtxInstruction, frame: _Frame) -> None:
        results, name, arguments = _parse_call(call.operands)
        callee = self.functions.get(name)
        self.n_calls += 1
        if name == _FAILED_ASSERTION:
            self.out.append(replace(call, name="trap", modifiers=(), operands=()))
            return
        if callee is None or name in frame.stack or len(frame.stack) > _MAX_DEPTH:
            self._forget_results(call, name, [r + frame.suffix for r in results])
            return
        suffix = f"@{self.n_calls}"
        passed = zip(
            [v.name for v in (*callee.results, *callee.parameters)], [*results, *arguments], strict=False
        )
        parameters = {inner: frame.parameters.get(o, o + frame.suffix) for inner, o in passed}
        end = f"$end{suffix}"
        if original.guard is not None:  # other lanes pass it by
            skip = PtxGuard(call.guard.register, not call.guard.is_negated)  # type: ignore[union-attr]
            self.out.append(replace(call, name="bra", modifiers=(), operands=(PtxSymbol(end),), guard=skip))
        self._copy(_Frame(callee, suffix, parameters, end, (*frame.stack, name)))
        self.out.append(PtxLabel(end, call.line))

    def _forget_results(self, call: PtxInstruction, callee: str, variables: list[str]) -> None:
        self.out.append(replace(call, name="call_external", modifiers=(), operands=(PtxSymbol(callee),)))
        for variable in variables:
            for offset in range(0, 16, 4):  # words of a result
                place = f"%{variable}+{offset}"
                if place in self.registers:
                    operands: tuple[PtxOperand, ...] = (PtxRegister(place),)
                    self.out.append(replace(call, name="call_result", modifiers=(), operands=operands))


def _count_bytes(type_name: str) -> int:
    digits = "".join(letter for letter in type_name if letter.isdigit())
    return max(1, int(digits or 32) // 8)


def _parse_call(operands: tuple[PtxOperand, ...]) -> tuple[list[str], str, list[str]]:
    """Return names of the results, of the callee, and of the arguments."""
    results: list[str] = []
    rest = list(operands)
    if rest and isinstance(rest[0], PtxVector):
        results = _list_names(rest.pop(0))
    callee = ""
    if rest and isinstance(rest[0], PtxSymbol):
        callee = rest[0].name
        del rest[0]
    arguments = _list_names(rest[0]) if rest and isinstance(rest[0], PtxVector) else []
    return results, callee, arguments


def _list_names(vector: PtxOperand) -> list[str]:
    elements = vector.elements if isinstance(vector, PtxVector) else ()
    return [getattr(element, "name", "") for element in elements]


class _Renamer:
    """Gives registers, labels and variables of a callee names of their own."""

    def __init__(self, registers: Mapping[str, str], variables: Mapping[str, str], frame: _Frame) -> None:
        self.registers, self.variables, self.frame = registers, variables, frame

    def rename_instruction(self, instruction: PtxInstruction) -> PtxInstruction:
        """Return the instruction with the names of the copy."""
        if not self.frame.suffix:
            return instruction
        guard = instruction.guard
        if guard is not None:
            guard = PtxGuard(self.registers.get(guard.register, guard.register), guard.is_negated)
        is_branch = instruction.name in ("bra", "brx")
        operands = tuple(self._rename(operand, is_branch) for operand in instruction.operands)
        return replace(instruction, guard=guard, operands=operands)

    def _rename(self, operand: PtxOperand, is_branch: bool) -> PtxOperand:
        match operand:
            case PtxRegister(name=name):
                return replace(operand, name=self.registers.get(name, name))
            case PtxSymbol(name=name):
                if is_branch:
                    return replace(operand, name=name + self.frame.suffix)
                return replace(operand, name=self.variables.get(name, name))
            case _:
                pass
        changes: dict[str, object] = {}
        for field in msgspec.structs.fields(operand):
            value = getattr(operand, field.name)
            if isinstance(value, Struct):
                changes[field.name] = self._rename(value, is_branch)  # type: ignore[arg-type]
            elif isinstance(value, tuple):
                changes[field.name] = tuple(self._rename(part, is_branch) for part in value)
        return replace(operand, **changes) if changes else operand
