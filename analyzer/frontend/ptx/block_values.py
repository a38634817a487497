"""What is known of the registers in a block while it is lowered, so that nothing is computed twice.

A register is told apart by how often the block has written it so far: `%r1` after its second write is another
value than before.
"""

from collections.abc import Sequence

from analyzer.frontend.ptx.control_flow import find_defined_names, list_register_names
from analyzer.frontend.ptx.statements import PtxImmediate, PtxInstruction, PtxOperand, PtxRegister


class BlockValues:
    """Values that the instructions of a block so far have made."""

    def __init__(self) -> None:
        self.found: dict[object, object] = {}  # by `make_key`
        self.constants: dict[str, int] = {}  # registers that hold a number
        self._versions: dict[str, int] = {}  # writes of each register

    def clear(self) -> None:
        """Forget all: another block begins, which may be entered from elsewhere."""
        self.found.clear()
        self.constants.clear()
        self._versions.clear()

    def note_writes(self, instruction: PtxInstruction, constant: int | None) -> None:
        """Take note that registers have new values; constant: the number that the first has."""
        names = find_defined_names(instruction)
        for name in names:
            self._versions[name] = self._versions.get(name, 0) + 1
            self.constants.pop(name, None)
        if constant is not None and len(names) == 1 and instruction.guard is None:
            self.constants[names[0]] = constant

    def make_key(self, what: object, operand: PtxOperand, user: PtxInstruction | None) -> object | None:
        """Return the key of what is computed from an operand; None where not all lanes compute it."""
        if user is None or user.guard is not None:
            return None
        if isinstance(operand, PtxImmediate):
            return (what, operand.value)
        if not isinstance(operand, PtxRegister):
            return None
        return (what, operand.name, self._versions.get(operand.name, 0))

    def add_product(self, instruction: PtxInstruction) -> None:
        """Take note of a product that a sum may take in, as long as what it was made of keeps its value."""
        target = instruction.operands[0]
        if not isinstance(target, PtxRegister) or instruction.guard is not None:
            return
        self.found["product", target.name, self._versions.get(target.name, 0) + 1] = instruction
        self.found["sources", target.name] = self._find_versions(instruction.operands[1:3])

    def find_product(self, operand: PtxOperand, user: PtxInstruction | None) -> PtxInstruction | None:
        """Return the product that a register holds, None where it holds none that could be made again."""
        found = self.found.get(self.make_key("product", operand, user))
        if not isinstance(found, PtxInstruction) or not isinstance(operand, PtxRegister):
            return None
        before = self.found.get(("sources", operand.name))
        return found if before == self._find_versions(found.operands[1:3]) else None

    def _find_versions(self, operands: Sequence[PtxOperand]) -> dict[str, int]:
        return {name: self._versions.get(name, 0) for name in list_register_names(operands)}
