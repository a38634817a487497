"""Model results on disk, which are found again only if nothing that they depend on has changed.

The key of a result is a SHA-256 digest of the dump and the files beside it, the launch and the contents of
its arguments, the GPU's figures, and the sources of this package with all shipped tables. A result is an
entry of `pipeline.entry_store`.
"""

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from analyzer.evaluation.case_table import Case
from analyzer.hardware.gpu import Gpu
from analyzer.models.registry import is_shipped
from analyzer.pipeline.content_digests import digest_code, digest_file, digest_input, digest_json

_FORMAT_VERSION = 3  # of keys and results


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one model for one row; fields as in `CasePrediction` and `CaseEntry`."""

    provenance: str = ""
    transferred: bool = False
    kernel: str = ""
    cycles: float = 0.0
    time_us: float = 0.0
    time_us_low: float = 0.0
    time_us_high: float = 0.0
    bound: str = ""
    clock_mhz: float = 0.0
    cpi_shares: Mapping[str, float] = {}
    reason: str = ""  # why there is no result


def make_cache_keys(case: Case, models: Sequence[str], *, inputs: str, gpu: Gpu) -> dict[str, str]:
    """Return the key of each model's result.

    inputs: the digest that `digest_inputs` returns. Raises OSError where a file cannot be read.
    """
    facts = digest_json(
        [
            _FORMAT_VERSION,
            digest_code() or "",
            inputs,
            [gpu.key, gpu.file, gpu.arch],
            case.kernel,
            [case.grid.sizes, case.block.sizes, case.cluster and case.cluster.sizes],
            case.dynamic_shared_bytes,
            [[which, repr(value)] for which, value in case.arguments],
            [digest_file(path) for path in case.data_files],
            case.l2,
            case.clock_mhz,
            case.timing,
        ]
    )
    return {model: digest_json([facts, model]) for model in models if is_shipped(model)}


def digest_inputs(path: Path) -> str:
    """Return a digest of a dump and of all files of its stem; of a binary also of the tools that read it.

    Raises OSError where a file cannot be read.
    """
    beside = (p for p in path.parent.glob(f"{glob.escape(path.stem)}.*") if p != path and p.is_file())
    return digest_input(path, sorted(beside))
