"""A launch without some of its instructions, or with some of them repeated.

Rows move, so all that names rows is renamed: arrays lose or repeat entries, blocks shrink or grow, accesses
and hit rates get new rows. A block may be left empty: models pass over it. What waited for a removed
instruction goes on at once, since nothing raises its scoreboard.

Example: rows 1 and 2 of four are removed. Row 3 becomes row 1, and its block [0, 4) becomes [0, 2).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple, replace
from numpy.typing import NDArray

from analyzer.advice.edited_input import edit_input
from analyzer.demand.access_bytes import AccessBytes
from analyzer.demand.hit_rates import KernelHitRates
from analyzer.demand.scoreboards import is_counted_wait
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipelines
from analyzer.flow.cfg import BasicBlock, Cfg
from analyzer.flow.def_use import DefUseChains, find_def_use_chains
from analyzer.ir.module import Kernel
from analyzer.ir.opcode import ARITHMETIC_KINDS, Opcode, OpKind
from analyzer.isa.control_encoding import ControlCodeColumns
from analyzer.models.interface import ModelInput

_Value = TypeVar("_Value")
_Table = TypeVar("_Table", AccessBytes, ControlCodeColumns)


def find_waiting_row(model_input: ModelInput, row: int) -> int | None:
    """Return the last instruction up to a row of the same block that waits for a scoreboard; None without.

    The SM model attributes the waits of a few instructions to the last of them.
    """
    cfg, kernel = model_input.cfg, model_input.kernel
    start = cfg.blocks[cfg.block_of[row]].start
    masks = model_input.control_codes.wait_mask[start : row + 1]
    waits = kernel.form_table.make_opcode_mask(is_counted_wait)
    waiting = np.flatnonzero((masks > 0) | waits[kernel.opcode_ids[start : row + 1]])
    return start + int(waiting[-1]) if len(waiting) else None


def without_rows(model_input: ModelInput, rows: Collection[int]) -> ModelInput:
    """Return an input without some instructions."""
    return with_rows(model_input, dict.fromkeys(rows, ()))


def with_rows(model_input: ModelInput, in_place_of: Mapping[int, Sequence[int]]) -> ModelInput:
    """Return an input in which other instructions stand in the place of some, and run as often as these did.

    in_place_of: by row those that stand there then, in order: itself twice, another one and itself, or none.
    """
    renaming = _Renaming.make(model_input.cfg, in_place_of)
    kernel = _take_from_kernel(model_input.kernel, renaming.taken)
    return edit_input(
        model_input,
        kernel=kernel,
        cfg=replace(model_input.cfg, kernel=kernel, blocks=renaming.blocks),
        profile=None if model_input.profile is None else _rename_profile(model_input.profile, renaming),
        execution_counts=model_input.execution_counts[renaming.places],
        control_codes=_take_from_columns(model_input.control_codes, renaming.taken),
        access_bytes=_take_from_columns(model_input.access_bytes, renaming.taken),
        cache_rates=_rename_rates(model_input.cache_rates, renaming),
        mbarrier_pipelines=_rename_pipelines(model_input.mbarrier_pipelines, renaming),
        early_waits={int(renaming.new_rows[row]): wait for row, wait in model_input.early_waits.items()},
    )


def find_dead_rows(cfg: Cfg, removed: Collection[int]) -> frozenset[int]:
    """Return the instructions whose results nothing needs any more once some others are removed.

    An instruction is needed if it does more than write registers, or if a needed one reads what it writes.
    """
    kernel, chains = cfg.kernel, find_def_use_chains(cfg)
    is_pure = kernel.form_table.make_opcode_mask(only_writes_registers)[kernel.opcode_ids].tolist()
    rows = range(cfg.blocks[-1].stop)
    roots = {row for row in rows if not is_pure[row]}
    gone = frozenset(removed)
    return find_needed_rows(chains, roots) - find_needed_rows(chains, roots - gone, gone) - gone


_NO_ROWS = frozenset[int]()


def find_needed_rows(
    chains: DefUseChains, roots: Collection[int], removed: frozenset[int] = _NO_ROWS
) -> frozenset[int]:
    """Return some instructions and all that write what these need, but for removed ones."""
    found, work = set(roots), list(roots)
    while work:
        for row in chains.producers(work.pop()):
            if row not in found and row not in removed:
                found.add(row)
                work.append(row)
    return frozenset(found)


def only_writes_registers(opcode: Opcode) -> bool:
    """Return whether an instruction does no more than write registers."""
    return opcode.kind in PURE_KINDS


# Instructions that do no more than write registers.
PURE_KINDS = ARITHMETIC_KINDS | {OpKind.MOVE}


class _Renaming(Struct, frozen=True, eq=False):
    """New rows of the instructions that stay."""

    taken: NDArray[np.int64]  # [new n], the old row that each new one is a copy of
    places: NDArray[np.int64]  # [new n], the old row in whose place it stands
    new_rows: NDArray[
        np.int64
    ]  # [n + 1], the first in the place of each; of a removed one the next that stays
    blocks: tuple[BasicBlock, ...]

    @classmethod
    def make(cls, cfg: Cfg, in_place_of: Mapping[int, Sequence[int]]) -> "_Renaming":
        """Return the renaming that puts other rows in the place of some."""
        rows = range(len(cfg.kernel))
        standing = [in_place_of.get(row, (row,)) for row in rows]
        lengths = [len(one) for one in standing]
        new_rows = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blocks = tuple(
            BasicBlock(block.index, int(new_rows[block.start]), int(new_rows[block.stop]))
            for block in cfg.blocks
        )
        taken = np.array([one for there in standing for one in there], dtype=np.int64)
        return cls(taken, np.repeat(rows, lengths), new_rows, blocks)

    def list_rows(self, row: int) -> list[int]:
        """Return the new rows that are copies of an old one."""
        found: list[int] = np.flatnonzero(self.taken == row).tolist()
        return found

    def rename_keys(self, by_row: Mapping[int, _Value]) -> dict[int, _Value]:
        """Return a mapping by new rows, without those that are removed."""
        return {new: value for row, value in by_row.items() for new in self.list_rows(row)}


def _take_from_kernel(kernel: Kernel, taken: NDArray[np.int64]) -> Kernel:
    words, lines = kernel.control_words, kernel.source_line_ids
    return replace(
        kernel,
        text_ids=kernel.text_ids[taken],
        addresses=kernel.addresses[taken],
        control_words=None if words is None else words[taken],
        source_line_ids=None if lines is None else lines[taken],
    )


def _take_from_columns(table: _Table, taken: NDArray[np.int64]) -> _Table:
    """Return a record of columns [n] with the entries of some rows; other fields stay."""
    columns = dict(zip(table.__struct_fields__, astuple(table), strict=True))
    return replace(
        table, **{name: value[taken] for name, value in columns.items() if isinstance(value, np.ndarray)}
    )


def _rename_profile(profile: ExecutionProfile, renaming: _Renaming) -> ExecutionProfile:
    new_rows = renaming.new_rows
    return replace(
        profile,
        accesses=tuple(
            replace(access, row=row) for access in profile.accesses for row in renaming.list_rows(access.row)
        ),
        block_parts=tuple(
            replace(part, start=int(new_rows[part.start]), stop=int(new_rows[part.stop]))
            for part in profile.block_parts
        ),
        unknown_branches=tuple(
            replace(
                branch,
                row=int(new_rows[branch.row]),
                origin_row=None if branch.origin_row is None else int(new_rows[branch.origin_row]),
            )
            for branch in profile.unknown_branches
        ),
    )


def _rename_rates(rates: KernelHitRates | None, renaming: _Renaming) -> KernelHitRates | None:
    return None if rates is None else replace(rates, by_row=renaming.rename_keys(rates.by_row))


def _rename_pipelines(pipelines: MbarrierPipelines | None, renaming: _Renaming) -> MbarrierPipelines | None:
    if pipelines is None:
        return None
    return replace(
        pipelines,
        uses=renaming.rename_keys(pipelines.uses),
        matrix_descriptors=renaming.rename_keys(pipelines.matrix_descriptors),
        box_pitches=renaming.rename_keys(pipelines.box_pitches),
    )
