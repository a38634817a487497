"""Double-precision arithmetic on single-precision numbers, which a constant without its `f` brings about."""

from collections.abc import Collection

import numpy as np
from msgspec.structs import astuple, replace

from analyzer.advice.edited_input import edit_input
from analyzer.advice.edited_rows import PURE_KINDS, find_dead_rows, without_rows
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.demand.opcode_costs import OpcodeCosts
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.hardware.gpu import find_sched_timing
from analyzer.ir.opcode import Opcode, OpKind, Semantics
from analyzer.ir.scheduling import Completion, SchedClass
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "fp64-arithmetic"
ACTION = "write constants with f (0.5f), and call the functions of single precision (sqrtf)"
_TYPES = ("F64", "F32")
_ENDING = frozenset({Semantics.FLOAT_TO_INT, Semantics.INT_COMPARE, Semantics.DOUBLE_COMPARE})
_WORD_KINDS = frozenset({OpKind.INTEGER, OpKind.MOVE, OpKind.HALF, OpKind.FLOAT})  # HFMA2 sets constants
_CONTROL_KINDS = frozenset({OpKind.BRANCH, OpKind.CALL, OpKind.RETURN, OpKind.CONTROL, OpKind.EXIT})


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return double-precision instructions between conversions from and to single precision."""
    model_input = result.model_input
    kernel, counts = model_input.kernel, model_input.execution_counts
    is_double = kernel.form_table.make_opcode_mask(_is_double)[kernel.opcode_ids]
    if not (is_double & (counts > 0)).any():
        return ()
    rows = sorted(_find_accidental_rows(model_input), key=lambda row: (-float(counts[row]), row))
    share = sum(float(counts[row]) for row in rows) / max(1.0, float(counts.sum()))
    message = (
        f"double-precision arithmetic on single-precision operands: {len(rows)} instructions, {share:.0%} of "
        "the executed ones, on the FP64 pipe, with conversions before and after"
    )
    return tuple(Site(row, message) for row in rows)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch with single-precision instructions in their place, and without the conversions."""
    model_input, rows = result.model_input, frozenset(list_rows(sites))
    kernel = model_input.kernel
    ids = {int(kernel.opcode_ids[row]) for row in rows}
    others = set(np.flatnonzero(model_input.execution_counts > 0).tolist()) - rows
    if ids & {int(kernel.opcode_ids[row]) for row in others}:
        return None  # costs belong to opcodes: other uses of the same opcode are meant
    chains = find_def_use_chains(model_input.cfg)
    conversions = {
        near
        for row in rows
        for near in chains.producers(row) | chains.consumers(row)
        if _get_types(kernel.find_opcode(near)) is not None
    }
    edited = edit_input(model_input, costs=_make_single_precision(model_input, ids))
    removed = conversions | _find_word_moves(model_input, chains, rows) | find_dead_rows(model_input.cfg, ())
    return Edit(without_rows(edited, removed), note="single-precision instructions in their place")


def _find_word_moves(model_input: ModelInput, chains: DefUseChains, rows: Collection[int]) -> frozenset[int]:
    """Return the moves and additions on the words of these doubles and of their constants."""
    kernel = model_input.kernel
    near = {one for row in rows for one in chains.producers(row) | chains.consumers(row)} - set(rows)
    return frozenset(
        one
        for one in near
        if kernel.find_opcode(one).kind in _WORD_KINDS
        and kernel.find_opcode(one).semantics is not Semantics.INT_COMPARE
        and chains.consumers(one)
        and all(
            reader in rows or kernel.find_opcode(reader).semantics is Semantics.INT_COMPARE
            for reader in chains.consumers(one)
        )
    )


def _find_accidental_rows(model_input: ModelInput) -> frozenset[int]:
    """Return double-precision rows some of whose operands were single, and whose results become so.

    A result may pass through other instructions that write registers (the steps of a square root move its
    words, and test its exponent), and may end in a comparison or an integer. Rows whose results end
    elsewhere, such as in memory, are meant.
    """
    kernel, chains, counts = (
        model_input.kernel,
        find_def_use_chains(model_input.cfg),
        model_input.execution_counts,
    )
    doubles = kernel.form_table.make_opcode_mask(_is_double)[kernel.opcode_ids].tolist()
    rows = {row for row in range(model_input.cfg.blocks[-1].stop) if doubles[row] and counts[row] > 0}
    readers, meant = dict[int, frozenset[int]](), set[int]()
    work = list(rows)
    while work:
        row = work.pop()
        if row in readers:
            continue
        found = frozenset() if _ends_double(kernel.find_opcode(row)) else chains.consumers(row)
        readers[row] = frozenset(one for one in found if counts[one] > 0)
        if any(_keeps_double(kernel.find_opcode(one)) for one in readers[row]):
            meant.add(row)
        work += [one for one in readers[row] if _passes_on(kernel.find_opcode(one))]
    while more := {row for row in readers if row not in meant and not meant.isdisjoint(readers[row])}:
        meant |= more
    kept = frozenset(rows - meant)
    return kept if any(_is_widened(model_input, chains.producers(row)) for row in kept) else frozenset()


def _is_widened(model_input: ModelInput, producers: Collection[int]) -> bool:
    return any(_get_types(model_input.kernel.find_opcode(row)) == ("F64", "F32") for row in producers)


def _ends_double(opcode: Opcode) -> bool:
    """Return whether the results of an instruction hold no double, though its operands may."""
    return (
        opcode.kind is OpKind.PREDICATE or opcode.semantics in _ENDING or _get_types(opcode) == ("F32", "F64")
    )


def _passes_on(opcode: Opcode) -> bool:
    return opcode.kind in PURE_KINDS and not _ends_double(opcode)


def _keeps_double(opcode: Opcode) -> bool:
    """Return whether an instruction does with a double what only a program that means it does."""
    return opcode.kind not in PURE_KINDS and opcode.kind not in _CONTROL_KINDS


def _get_types(opcode: Opcode) -> tuple[str, str] | None:
    """Return the types that a conversion of floating-point numbers writes and reads; None for others."""
    if opcode.semantics is not Semantics.FLOAT_TO_FLOAT:
        return None
    found = [modifier for modifier in opcode.modifiers if modifier in _TYPES]
    return (found[0], found[1]) if len(found) == 2 else None


def _make_single_precision(model_input: ModelInput, ids: Collection[int]) -> OpcodeCosts:
    """Return costs in which some opcodes have those of FFMA.

    They stay on their own pipe, at the rate of all FP32 pipes: on those the pairs of registers that they name
    would count at the ports of the register file.
    """
    timing = find_sched_timing(model_input.arch, SchedClass.FP32)
    n_pipes = 1 if timing.alternate_pipe is None else 2
    values = {
        "alternate_pipe": -1,
        "issue_cycles": timing.issue_cycles.value / n_pipes,
        "latency_cycles": timing.latency_cycles.value,
        "is_long_scoreboard": timing.completion is Completion.LONG_SCOREBOARD,
    }
    chosen = sorted(ids)
    columns = dict(zip(OpcodeCosts.__struct_fields__, astuple(model_input.costs), strict=True))
    for name, value in values.items():
        columns[name] = columns[name].copy()
        columns[name][chosen] = value
    return replace(model_input.costs, **columns)


def _is_double(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.DOUBLE or opcode.semantics is Semantics.DOUBLE_COMPARE
