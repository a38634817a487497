"""What instructions of the copy engine read: shared address, global address and size, or box of a tensor."""

from msgspec import Struct

from analyzer.ir.module import InstructionForm
from analyzer.ir.opcode import BULK_WRITE_SEMANTICS, OpKind, Semantics
from analyzer.ir.operand import Address, Register
from analyzer.isa.register_operands import find_register_unit

BULK_SIZE_UNIT_BYTES = 16  # in which the register of a copy without a tensor gives its size
_N_DIMENSIONS_BY_MODIFIER = {f"{n}D": n for n in range(1, 6)}
_NON_TILED_MODIFIERS = frozenset(
    {"IM2COL", "GATHER4", "SCATTER4"}
)  # whose coordinates are none of a box's corner
_BULK_KINDS = {Semantics.BULK_REDUCTION: OpKind.REDUCTION, Semantics.MBARRIER_COPY: OpKind.LOAD}


class BulkOperands(Struct, frozen=True, kw_only=True):
    """Registers by storage number, of addresses the first one; None for what it has not.

    kind: what it does to global memory. shared: address there; place, size: of bytes that lie side by side;
    tensor: address of a descriptor; coordinates: of the box's first element, innermost axis first.
    """

    kind: OpKind
    shared_address: int
    global_address: int | None = None
    size: int | None = None
    tensor_map: int | None = None
    coordinates: tuple[int, ...] = ()

    @property
    def size_registers(self) -> tuple[int, ...]:
        """What says how much is copied."""
        if self.size is not None:
            return (self.size,)
        return () if self.tensor_map is None else (self.tensor_map, self.tensor_map + 1)

    @property
    def address_registers(self) -> tuple[int, ...]:
        """What says where in global memory."""
        return (
            self.coordinates
            if self.global_address is None
            else (self.global_address, self.global_address + 1)
        )


def parse_bulk_store(form: InstructionForm) -> BulkOperands | None:
    """What a copy or reduction from shared to global memory reads; None for all else."""
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
    """What a copy of a box from a tensor to shared memory reads; None for all else."""
    dimensions = count_tensor_dimensions(form)
    if form.opcode.semantics is not Semantics.MBARRIER_COPY or dimensions is None:
        return None
    return _make_tensor_operands(form, OpKind.LOAD, dimensions, 2)


def find_shared_address(form: InstructionForm) -> int | None:
    """The register that says where in shared memory a copy begins, to it or from it."""
    if form.opcode.semantics is Semantics.MBARRIER_COPY:
        return _find_address_bases(form)[0]
    found = parse_bulk_store(form)
    return None if found is None else found.shared_address


def count_tensor_dimensions(form: InstructionForm) -> int | None:
    """Axes of the tensor that an instruction names; None where there is none."""
    return next(
        (
            _N_DIMENSIONS_BY_MODIFIER[word]
            for word in form.opcode.modifiers
            if word in _N_DIMENSIONS_BY_MODIFIER
        ),
        None,
    )


def _make_tensor_operands(
    form: InstructionForm, kind: OpKind, dimensions: int, before: int
) -> BulkOperands | None:
    """before: registers in front of the coordinates (shared address, mbarrier)."""
    shared, tensor = _find_address_bases(form)
    if shared is None or tensor is None or not _NON_TILED_MODIFIERS.isdisjoint(form.opcode.modifiers):
        return None
    coordinates = tuple(range(shared + before, shared + before + dimensions))
    return BulkOperands(kind=kind, shared_address=shared, tensor_map=tensor, coordinates=coordinates)


def _find_address_bases(form: InstructionForm) -> tuple[int | None, int | None]:
    found = [
        find_register_unit(operand.bases[0])
        for operand in form.operands
        if isinstance(operand, Address) and operand.bases
    ]
    return (found[0], found[1]) if len(found) > 1 else (None, None)
