"""Products of matrices that load a word or more for each multiply-add: a tile in registers loads fewer."""

import numpy as np

from analyzer.advice.earlier_loads import is_load
from analyzer.advice.interface import Edit, Site
from analyzer.advice.merged_threads import merge_threads
from analyzer.advice.scalar_products import find_scalar_products, list_staging_rows
from analyzer.flow.def_use import find_def_use_chains
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "register-tile"
ACTION = "let each thread make 2 x 2 times as many elements, so that it uses each loaded word twice as often"
_MIN_WORDS = 1.1  # for a multiply-add; a tile of 2 x 2 loads one
_SIDE = 2


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the loads of a product of matrices that loads more than a word for each multiply-add."""
    model_input = result.model_input
    found = find_scalar_products(model_input)
    words = 0.0 if found is None else found.count_words_per_product(model_input)
    if found is None or words < _MIN_WORDS:
        return ()
    message = (
        f"a thread loads {words:.3g} words for each multiply-add of a matrix product, since it makes few "
        "elements; a tile of 2 x 2 elements loads 1, one of 4 x 4 0.5"
    )
    counts = model_input.execution_counts
    return tuple(
        Site(row, message) for row in sorted(found.loads, key=lambda row: (-float(counts[row]), row))
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which a thread does the work of four: twice the loads, four times the products."""
    model_input = result.model_input
    found = find_scalar_products(model_input)
    if found is None:
        return None
    staging = list_staging_rows(model_input, found.loads)
    times = dict.fromkeys([*found.loads, *found.conversions, *staging], _SIDE)
    times |= dict.fromkeys(_find_staged_loads(model_input, staging), _SIDE)
    times |= dict.fromkeys([*found.rows, *_list_result_stores(model_input)], _SIDE * _SIDE)
    side = 2.0 / found.count_words_per_product(model_input)  # of the square tile that loads so many words
    registers = round((_SIDE * _SIDE - 1) * side * side + (_SIDE - 1) * 2 * side)
    merged = merge_threads(
        model_input, _SIDE * _SIDE, times, registers=registers, shared_factor=_SIDE if staging else 1.0
    )
    if merged is None:
        return None
    return Edit(merged, note=f"tiles of twice the rows and columns, {registers} registers more per thread")


def _find_staged_loads(model_input: ModelInput, staging: list[int]) -> frozenset[int]:
    """Return the loads from global memory whose words are stored to shared memory."""
    kernel, chains = model_input.kernel, find_def_use_chains(model_input.cfg)
    feeding = frozenset[int]().union(*(chains.producers(row) for row in staging))
    return frozenset(row for row in feeding if is_load(kernel.find_opcode(row), GLOBAL_SPACES))


def _list_result_stores(model_input: ModelInput) -> list[int]:
    kernel = model_input.kernel
    executed = np.flatnonzero(model_input.execution_counts > 0).tolist()
    return [
        row
        for row in executed
        if kernel.find_opcode(row).kind is OpKind.STORE and kernel.find_opcode(row).space in GLOBAL_SPACES
    ]
