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
from analyzer.execution.lowering.loop_bounds import find_bound_loads
from analyzer.execution.lowering.segments import CompiledKernel
from analyzer.execution.lowering.step import ConstantRead
from analyzer.execution.machine.access_totals import AccessKey, AccessTotals
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.flow.def_use import find_def_use_chains
from analyzer.ir.arrays import FloatArray


class MissingInputSearch(Struct, frozen=True, eq=False):
    """Finds missing inputs of one executed launch."""

    kernel: CompiledKernel
    image: ConstantImage
    access_totals: Mapping[AccessKey, AccessTotals]

    def find_by_origin(self, origin_row: int, *, exit_row: int | None = None) -> MissingInput | None:
        """Return the input that would make the words of an origin known; None if no argument does.

        origin_row: row of an instruction, or the number of instructions plus the number of a reason.
        exit_row: a branch that leaves a loop and depends on it; one number for a whole buffer settles its
        iterations, unless they are the difference of two loads.
        """
        n_rows = len(self.kernel.cfg.kernel)
        if origin_row >= n_rows:
            reason = origin_row - n_rows
            missing = self.image.missing_inputs
            return missing[reason] if reason < len(missing) else None
        owner = self._find_loaded_allocation(origin_row)
        if owner is None or owner.ordinal is None or owner.is_parameter:
            return None
        fill = None if exit_row is None else self._find_fill(exit_row, owner)
        return MissingInput(option=f"--arg {owner.ordinal}={fill or '@data.npy'}", name=owner.name)

    def _find_fill(self, exit_row: int, owner: Allocation) -> str | None:
        """Return `fill:N` with the type of the elements that bound a loop; None if no one number decides."""
        bounds = find_bound_loads(find_def_use_chains(self.kernel.cfg), exit_row)
        own = [load for load in bounds if self._find_loaded_allocation(load.row) is owner]
        if len(own) > 1:
            return None
        element = own[0].element if own else ""
        return f"fill:{element}:N" if element else "fill:N"

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
