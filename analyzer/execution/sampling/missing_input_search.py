"""Search for the inputs that nobody gave, from the origins of unknown values.

An origin names the instruction or the constant word that made a value unknown. A constant word is a scalar
argument: `--arg 2=N` gives it. A load reads what a pointer leads to: the argument is the one in whose
allocation the load's addresses lie, and `--arg 3=fill:N` or `--arg 3=@data.npy` gives its contents.

Example: `LDG R7, [R2]` with R2 in the allocation of argument 3 is the origin of a loop's bound: one number
for all of that memory, `--arg 3=fill:N`, settles it.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from analyzer.execution.binding.constant_image import Allocation, ConstantImage
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.lowering.step import ConstantRead
from analyzer.execution.machine.access_totals import AccessKey, AccessTotals
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.ir.arrays import FloatArray


class MissingInputSearch(Struct, frozen=True, eq=False):
    """Finds missing inputs of one executed launch."""

    kernel: CompiledKernel
    image: ConstantImage
    access_totals: Mapping[AccessKey, AccessTotals]

    def find_by_origin(self, origin_row: int, *, is_trip: bool = False) -> MissingInput | None:
        """Return the input that would make the words of an origin known; None if no argument does.

        origin_row: row of an instruction, or the number of instructions plus the number of a reason.
        is_trip: a number of iterations hangs on it, which one number for the whole buffer settles.
        """
        n_rows = len(self.kernel.cfg.kernel)
        if origin_row >= n_rows:
            reason = origin_row - n_rows
            missing = self.image.missing_inputs
            return missing[reason] if reason < len(missing) else None
        owner = self._find_loaded_allocation(origin_row)
        if owner is None or owner.ordinal is None or owner.is_parameter:
            return None
        contents = "fill:N" if is_trip else "@data.npy"
        return MissingInput(option=f"--arg {owner.ordinal}={contents}", name=owner.name)

    def find_scalars(self, segment_executions: FloatArray) -> tuple[MissingInput, ...]:
        """Return the scalars without a value that executed code reads for branches and addresses.

        segment_executions: [n_segment].
        """
        return tuple(dict.fromkeys(self._iterate_missing_scalars(segment_executions)))

    def _iterate_missing_scalars(self, segment_executions: FloatArray) -> Iterator[MissingInput]:
        for index in np.flatnonzero(segment_executions).tolist():
            for action in self.kernel.segments[index].actions:
                for read in () if action.step is None else action.step.reads:
                    if not isinstance(read, ConstantRead):
                        continue
                    missing = self.image.find_missing_input(read.bank, read.offset)
                    if missing is not None:
                        yield missing

    def _find_loaded_allocation(self, row: int) -> Allocation | None:
        """Return the allocation that an instruction loads from; None if that is not known."""
        for (other, _, _), totals in self.access_totals.items():
            if other == row and totals.first_address is not None:
                address = np.array([totals.first_address % (1 << 63)], dtype=np.int64)
                index = int(self.image.find_allocations(address)[0])
                return None if index < 0 else self.image.allocations[index]
        return None
