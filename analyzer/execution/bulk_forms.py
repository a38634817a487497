"""What instructions of the copy engine read: shared address, global address and size, or box of a tensor."""

from msgspec import Struct

from analyzer.ir.opcode import BULK_WRITES, OpKind, Semantics
from analyzer.ir.operand import Address, Register
from analyzer.ir.program import InstructionForm
from analyzer.isa.roles import register_storage

SIZE_UNIT_BYTES = 16  # in which the register of a copy without a tensor gives its size
_DIMENSIONS = {f"{n}D": n for n in range(1, 6)}
_OTHER_BOXES = frozenset({"IM2COL", "GATHER4", "SCATTER4"})  # whose coordinates are none of a box's corner
_KINDS = {Semantics.BULK_REDUCTION: OpKind.REDUCTION, Semantics.MBARRIER_COPY: OpKind.LOAD}


class BulkForm(Struct, frozen=True, kw_only=True):
    """Registers by storage number, of addresses the first one; None for what it has not.

    kind: what it does to global memory. shared: address there; place, size: of bytes that lie side by side;
    tensor: address of a descriptor; coordinates: of the box's first element, innermost axis first.
    """

    kind: OpKind
    shared: int
    place: int | None = None
    size: int | None = None
    tensor: int | None = None
    coordinates: tuple[int, ...] = ()

    @property
    def sizing(self) -> tuple[int, ...]:
        """What says how much is copied."""
        if self.size is not None:
            return (self.size,)
        return () if self.tensor is None else (self.tensor, self.tensor + 1)

    @property
    def placing(self) -> tuple[int, ...]:
        """What says where in global memory."""
        return self.coordinates if self.place is None else (self.place, self.place + 1)


def bulk_write(form: InstructionForm) -> BulkForm | None:
    """What a copy or reduction from shared to global memory reads; None for all else."""
    if form.opcode.semantics not in BULK_WRITES:
        return None
    kind = _KINDS.get(form.opcode.semantics, OpKind.STORE)
    if (dimensions := tensor_dimensions(form)) is not None:
        return _boxed(form, kind, dimensions, 1)
    first, second = _bases(form)
    size = form.operands[-1]
    if first is None or second is None or not isinstance(size, Register) or size.index is None:
        return None
    return BulkForm(kind=kind, shared=second, place=first, size=register_storage(size))


def box_read(form: InstructionForm) -> BulkForm | None:
    """What a copy of a box from a tensor to shared memory reads; None for all else."""
    dimensions = tensor_dimensions(form)
    if form.opcode.semantics is not Semantics.MBARRIER_COPY or dimensions is None:
        return None
    return _boxed(form, OpKind.LOAD, dimensions, 2)


def shared_side(form: InstructionForm) -> int | None:
    """The register that says where in shared memory a copy begins, to it or from it."""
    if form.opcode.semantics is Semantics.MBARRIER_COPY:
        return _bases(form)[0]
    found = bulk_write(form)
    return None if found is None else found.shared


def tensor_dimensions(form: InstructionForm) -> int | None:
    """Axes of the tensor that an instruction names; None where there is none."""
    return next((_DIMENSIONS[word] for word in form.opcode.modifiers if word in _DIMENSIONS), None)


def _boxed(form: InstructionForm, kind: OpKind, dimensions: int, before: int) -> BulkForm | None:
    """before: registers in front of the coordinates (shared address, mbarrier)."""
    shared, tensor = _bases(form)
    if shared is None or tensor is None or not _OTHER_BOXES.isdisjoint(form.opcode.modifiers):
        return None
    coordinates = tuple(range(shared + before, shared + before + dimensions))
    return BulkForm(kind=kind, shared=shared, tensor=tensor, coordinates=coordinates)


def _bases(form: InstructionForm) -> tuple[int | None, int | None]:
    found = [
        register_storage(operand.bases[0])
        for operand in form.operands
        if isinstance(operand, Address) and operand.bases
    ]
    return (found[0], found[1]) if len(found) > 1 else (None, None)
