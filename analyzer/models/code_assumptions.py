"""Notes on what every model assumes about the code itself: waits, fences, constant loads."""

from collections.abc import Iterator

import numpy as np

from analyzer.ir.opcode import AddressSpace, Opcode, OpKind
from analyzer.isa.register_operands import find_constant_index
from analyzer.models.interface import ModelInput


def describe_code_assumptions(model_input: ModelInput) -> Iterator[str]:
    """Yield the notes that apply to a kernel."""
    if model_input.kernel.control_words is None:
        yield (
            "no control words in the input: waits follow from register dependences and latencies "
            "(stall counts and scoreboards assumed)"
        )
    if _has_unknown_constant_indices(model_input):
        yield (
            "constant loads at addresses that are not known are assumed to read one word a warp; "
            "each further word is a pass of its own"
        )
    yield from _describe_fences(model_input)


def _has_unknown_constant_indices(model_input: ModelInput) -> bool:
    """Return whether a constant load is executed whose lanes may read different words, nobody knows which."""
    kernel, profile = model_input.kernel, model_input.profile
    accesses = () if profile is None else profile.accesses
    known_rows = {
        access.row
        for access in accesses
        if access.space is AddressSpace.CONSTANT and access.wavefronts is not None
    }
    loads = kernel.form_table.make_opcode_mask(_is_constant_load)[kernel.opcode_ids]
    for row in np.flatnonzero(loads & (model_input.execution_counts > 0)).tolist():
        form = kernel.decode_form(row)
        if row not in known_rows and find_constant_index(form.opcode, form.operands) is not None:
            return True
    return False


def _is_constant_load(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.LOAD and opcode.space is AddressSpace.CONSTANT


def _describe_fences(model_input: ModelInput) -> Iterator[str]:
    """Yield a note on what a warp is taken to wait for at fences, if it executes any."""
    ids = model_input.kernel.opcode_ids
    waits = model_input.costs.fence_cycles[ids]
    # np.unique would import numpy.ma
    executed = sorted(set(waits[(waits > 0) & (model_input.execution_counts > 0)].tolist()))
    if executed:
        cycles = " or ".join(f"{wait:,.0f}" for wait in executed)
        yield (
            f"memory fences take {cycles} cycles beside queues: the way to the L2 and back, and longer in "
            "the scope of the system (assumed)"
        )
