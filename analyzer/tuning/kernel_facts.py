"""What is known of each compiled code of a kernel: resources, and what its main loop asks of an SM.

A table holds one row per code (tile, warps, stages) of one kernel and architecture, made by
`bench/moe_facts.py` with Triton and this package's own analysis, and shipped so that ranking needs neither.
It is a `.npz` of a few arrays, read with numpy alone. Cycles are those of a CTA in one iteration of the loop
over K, at the rates of the architecture's reference GPU, as an SM of four sub-cores spends them.
"""

import io
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.archives import read_npz
from analyzer.files import read_file, write_file
from analyzer.resources import find_data_folder
from analyzer.text.errors import HardwareError, InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FACT_COLUMNS = (
    "registers",  # per thread
    "spill_bytes",  # per thread
    "shared_bytes",  # per CTA, all dynamic
    "instructions",  # of the code
    "loop_instructions",  # executed by a warp in an iteration
    "other_instructions",  # executed by a warp before and after the loop
    "tensor_cycles",
    "shared_cycles",  # wavefronts of shared memory
    "issue_cycles",
    "alu_cycles",
    "load_store_cycles",
    "latency_cycles",  # of one warp alone, its waits for global memory left out
)
_MAX_BYTES = 1 << 26


class KernelFacts(Struct, frozen=True, eq=False):
    """Facts of all codes of one kernel for one architecture."""

    kernel: str
    arch: str  # sm_90
    reference_gpu: str  # whose rates the cycles are at
    made_by: str  # compiler and version
    codes: Integers  # [n, 5]: BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, num_warps, num_stages; sorted
    values: Floats  # [n, len(FACT_COLUMNS)]

    def get_column(self, name: str) -> Floats:
        """Return one fact of all codes, [n]."""
        return self.values[:, FACT_COLUMNS.index(name)]

    def find_rows(self, codes: Integers) -> Integers:
        """Return the row of each code, -1 where the table lacks it."""
        row_by_code = {tuple(code): row for row, code in enumerate(self.codes.tolist())}
        return np.array([row_by_code.get(tuple(code), -1) for code in codes.tolist()], dtype=np.int64)


def save_facts(facts: KernelFacts, path: Path) -> None:
    """Write a table; the same facts give the same bytes."""
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        identity=np.array([facts.kernel, facts.arch, facts.reference_gpu, facts.made_by]),
        columns=np.array(FACT_COLUMNS),
        codes=facts.codes.astype(np.int16),
        values=facts.values.astype(np.float32),
    )
    write_file(path, [stream.getvalue()])


def load_facts(path: Path) -> KernelFacts:
    """Return a table. Raises InputError for a file that is none, or has other columns."""
    try:
        arrays = read_npz(read_file(path, _MAX_BYTES), ("identity", "columns", "codes", "values"), _MAX_BYTES)
        identity, columns = arrays["identity"].tolist(), tuple(arrays["columns"].tolist())
        codes, values = arrays["codes"].astype(np.int64), arrays["values"].astype(np.float64)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: no table of compiled facts: {error}") from None
    if columns != FACT_COLUMNS or len(identity) != 4 or codes.shape[1:] != (5,):
        raise InputError(f"{path}: a table of compiled facts of another version")
    kernel, arch, gpu, made_by = map(str, identity)
    return KernelFacts(kernel, arch, gpu, made_by, codes, values)


def find_facts_file(kernel: str, arch: str) -> Path:
    """Return where the shipped table of a kernel and architecture lies, or would lie."""
    return find_data_folder("hwdb") / "tuning" / f"{kernel}-{arch}.npz"


@cache
def load_shipped_facts(kernel: str, arch: str) -> KernelFacts:
    """Return the shipped table. Raises HardwareError where there is none, and says of which there is one."""
    path = find_facts_file(kernel, arch)
    if not path.is_file():
        known = list_shipped_archs(kernel)
        raise HardwareError(
            f"no compiled facts of {kernel} for {arch} are shipped",
            hint=f"there are some for {', '.join(known)}; --compile makes others, with Triton installed",
        )
    return load_facts(path)


def list_shipped_archs(kernel: str) -> tuple[str, ...]:
    """Return the architectures with a shipped table, sorted."""
    folder = find_data_folder("hwdb") / "tuning"
    return tuple(sorted(each.stem.removeprefix(f"{kernel}-") for each in folder.glob(f"{kernel}-*.npz")))
