"""A tiny interpreter of scalar SASS: one lane, integer registers, predicates.

It counts the executions of each instruction, as a reference for trip counts. It shares only the parsed
operands with the analyzer.
"""

from collections.abc import Callable

from analyzer.ir.module import InstructionForm, Kernel
from analyzer.ir.operand import Immediate, Operand, Predicate, Register

_MASK = 0xFFFFFFFF
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


class Machine:
    """State of one lane."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.registers: dict[str, int] = {}
        self.predicates: dict[str, bool] = {}
        self.executions = [0] * len(kernel)

    def run(self, max_steps: int = 20_000) -> list[int] | None:
        """Return the executions of each instruction until EXIT; None if it is not reached in `max_steps`."""
        rows = {int(address): row for row, address in enumerate(self.kernel.addresses)}
        row = 0
        for _ in range(max_steps):
            form = self.kernel.decode_form(row)
            self.executions[row] += 1
            taken = form.guard is None or self.is_true(form.guard)
            row += 1
            if not taken:
                continue
            if form.opcode.name == "EXIT":
                return self.executions
            if form.opcode.name == "BRA":
                target = form.operands[-1]
                assert isinstance(target, Immediate)
                row = rows[int(target.value)]
            else:
                self.execute(form)
        return None

    def execute(self, form: InstructionForm) -> None:
        if form.opcode.name == "NOP":
            return
        first, *rest = form.operands
        match form.opcode.name:
            case "MOV":
                self.registers[str(first)] = self.value(rest[0])
            case "IADD3" | "VIADD":
                self.registers[str(first)] = sum(map(self.value, rest)) & _MASK
            case "IMAD":
                a, b, c = map(self.value, rest)
                self.registers[str(first)] = (a * b + c) & _MASK
            case "ISETP":
                compare = next(_COMPARE[word] for word in form.opcode.modifiers if word in _COMPARE)
                left, right = self.value(rest[1]), self.value(rest[2])
                if "U32" not in form.opcode.modifiers:
                    left, right = (v - (v >> 31 << 32) for v in (left, right))
                self.predicates[str(first)] = compare(left, right)
            case name:
                raise NotImplementedError(name)

    def value(self, operand: Operand) -> int:
        match operand:
            case Immediate(value=int(value)):
                return value & _MASK
            case Register(index=None):
                return 0
            case Register():
                return self.registers[str(operand)]
            case _:
                raise NotImplementedError(str(operand))

    def is_true(self, predicate: Predicate) -> bool:
        if predicate.index is None:
            return not predicate.is_negated
        plain = Predicate(predicate.file, predicate.index)
        return self.predicates[str(plain)] is not predicate.is_negated
