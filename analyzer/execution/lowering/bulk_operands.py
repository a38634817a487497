"""Operands of bulk copies (TMA): a shared address, and a global address and size or a box of a tensor."""

from msgspec import Struct

from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS, OpKind, Semantics
from analyzer.ir.operand import Address, Register
from analyzer.isa.register_operands import find_register_unit

BULK_SIZE_UNIT_BYTES = 16  # unit of the size register of a copy without a tensor map
_N_DIMENSIONS_BY_MODIFIER = {f"{n}D": n for n in range(1, 6)}
# Modes whose coordinates are not those of a box's corner.
_NON_TILED_MODIFIERS = frozenset({"IM2COL", "GATHER4", "SCATTER4"})
_BULK_KINDS = {Semantics.BULK_REDUCTION: OpKind.REDUCTION, Semantics.MBARRIER_COPY: OpKind.LOAD}


class BulkOperands(Struct, frozen=True, kw_only=True):
    """Operands of a bulk copy: storage numbers of registers, of a 64-bit address the low one.

    A copy has either a global address and a size (contiguous bytes), or a tensor map and coordinates.
    """

    kind: OpKind  # effect on global memory: LOAD, STORE or REDUCTION
    shared_address: int
    global_address: int | None = None
    size: int | None = None  # in units of BULK_SIZE_UNIT_BYTES
    tensor_map: int | None = None  # address of the descriptor
    coordinates: tuple[int, ...] = ()  # of the first element of the box, innermost axis first

    @property
    def size_registers(self) -> tuple[int, ...]:
        """Registers that determine how many bytes are copied."""
        if self.size is not None:
            return (self.size,)
        return () if self.tensor_map is None else (self.tensor_map, self.tensor_map + 1)

    @property
    def address_registers(self) -> tuple[int, ...]:
        """Registers that determine which bytes of global memory are copied."""
        return (
            self.coordinates
            if self.global_address is None
            else (self.global_address, self.global_address + 1)
        )


def parse_bulk_store(form: InstructionForm) -> BulkOperands | None:
    """Return the operands of a bulk copy or reduction from shared to global memory, None for other forms."""
    if form.opcode.semantics not in BULK_WRITE_SEMANTICS:
        return None
    kind = _BULK_KINDS.get(form.opcode.semantics, OpKind.STORE)
    if (dimensions := count_tensor_dimensions(form)) is not None:
        return _make_tensor_operands(form, kind, dimensions, 1)
    first, second = _find_address_bases(form)
    size = form.operands[-1]
    if first is None or second is None or not isinstance(size, Register) or size.index is None:
        return None
    return BulkOperands(kind=kind, shared_address=second, global_address=first, size=find_register_unit(size))


def parse_tensor_load(form: InstructionForm) -> BulkOperands | None:
    """Return the operands of a tensor copy from global to shared memory, None for other forms."""
    dimensions = count_tensor_dimensions(form)
    if form.opcode.semantics is not Semantics.MBARRIER_COPY or dimensions is None:
        return None
    return _make_tensor_operands(form, OpKind.LOAD, dimensions, 2)


def find_shared_address(form: InstructionForm) -> int | None:
    """Return the register with the shared-memory address of a bulk copy in either direction."""
    if form.opcode.semantics is Semantics.MBARRIER_COPY:
        return _find_address_bases(form)[0]
    found = parse_bulk_store(form)
    return None if found is None else found.shared_address


def count_tensor_dimensions(form: InstructionForm) -> int | None:
    """Return the number of tensor axes that the modifiers name (`.2D`), None where they name none."""
    return next(
        (
            _N_DIMENSIONS_BY_MODIFIER[word]
            for word in form.opcode.modifiers
            if word in _N_DIMENSIONS_BY_MODIFIER
        ),
        None,
    )


def _make_tensor_operands(
    form: InstructionForm, kind: OpKind, dimensions: int, n_before: int
) -> BulkOperands | None:
    """Build the operands of a tensor copy.

    n_before: registers before the coordinates (shared address, and mbarrier of a load).
    """
    shared, tensor = _find_address_bases(form)
    if shared is None or tensor is None or not _NON_TILED_MODIFIERS.isdisjoint(form.opcode.modifiers):
        return None
    coordinates = tuple(range(shared + n_before, shared + n_before + dimensions))
    return BulkOperands(kind=kind, shared_address=shared, tensor_map=tensor, coordinates=coordinates)


def _find_address_bases(form: InstructionForm) -> tuple[int | None, int | None]:
    found = [
        find_register_unit(operand.bases[0])
        for operand in form.operands
        if isinstance(operand, Address) and operand.bases
    ]
    return (found[0], found[1]) if len(found) > 1 else (None, None)
