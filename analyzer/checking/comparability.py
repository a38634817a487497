"""What figures rest on, and whether those of two runs compare: model, hardware, architectures, launches.

A model that moved changes the figures of kernels that did not. So a baseline of another model is refused,
with how many kernels have the code that it has: of those it is known that nothing changed.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from analyzer.checking.kernel_matching import Matching
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.power import find_power_limit_w
from analyzer.report.analyze_schema import Report
from analyzer.report.baseline_schema import BASELINE_SCHEMA, Baseline, BaselineGpu, BaselineKernel
from analyzer.text.errors import UsageError
from analyzer.text.kernel_names import list_names_for_people

_FIGURE_DIGITS = 16
_MAX_SHOWN_KERNELS = 3


def make_head(report: Report, model: str, gpu_names: Sequence[str], *, assumed_launch: bool) -> Baseline:
    """Return a baseline without kernels: what the figures of a report rest on.

    gpu_names: as the user gave them, among them paths of hardware files.
    """
    gpus = find_report_gpus(report, gpu_names)
    return Baseline(
        schema=BASELINE_SCHEMA,
        tool_version=report.tool_version,
        model=model,
        model_fingerprint=report.model_fingerprint,
        assumed_launch=assumed_launch,
        gpus=tuple(BaselineGpu(gpu=gpu.key, figures=_digest([gpu.key, gpu.file, gpu.arch])) for gpu in gpus),
        inputs=(),
        kernels=(),
    )


def find_report_gpus(report: Report, gpu_names: Sequence[str]) -> list[Gpu]:
    """Return the GPUs of a report, by key; gpu_names: see `make_head`."""
    named = [load_gpu(name) for name in gpu_names if name != "all"]
    by_key = {gpu.key: gpu for gpu in named}
    return [by_key.get(key) or load_gpu(key) for key in sorted(report.gpus)]


def list_clock_notes(gpus: Iterable[Gpu]) -> Iterator[str]:
    """Yield a note where a kernel timed alone, as a check does, may have another clock than lasting work."""
    names = [
        gpu.name
        for gpu in gpus
        if (power := gpu.file.power) is not None
        and find_power_limit_w(power, lasts=False) != find_power_limit_w(power, lasts=True)
    ]
    if names:
        yield (
            f"each kernel is timed alone (--timing kernel): on {list_names_for_people(names, 3)} its clock "
            "and its cycles may be above those that `analyze` reports for launches that follow each other"
        )


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:_FIGURE_DIGITS]


def list_differences(old: Baseline, new: Baseline) -> Iterator[str]:
    """Yield why figures of a baseline do not compare with new ones."""
    if old.model != new.model:
        yield f"its times are of the model {old.model}, these of {new.model}"
    elif old.model_fingerprint != new.model_fingerprint:
        yield (
            f"another model made its times: fingerprint {old.model_fingerprint or '?'} of warplens "
            f"{old.tool_version}, this is {new.model_fingerprint or '?'} of {new.tool_version}"
        )
    if old.assumed_launch != new.assumed_launch:
        with_or_without = "with" if old.assumed_launch else "without"
        yield f"it was made {with_or_without} assumed launches"
    figures = {gpu.gpu: gpu.figures for gpu in old.gpus}
    moved = [gpu.gpu for gpu in new.gpus if figures.get(gpu.gpu, gpu.figures) != gpu.figures]
    if moved:
        yield f"figures of {', '.join(moved)} were other ones"
    missing = [gpu.gpu for gpu in new.gpus if gpu.gpu not in figures]
    if missing:
        yield f"it has no times of {', '.join(missing)}, only of {', '.join(sorted(figures)) or 'none'}"


def list_moves(
    old: Sequence[BaselineKernel], new: Sequence[BaselineKernel], matching: Matching
) -> Iterator[str]:
    """Yield which kernels were launched otherwise, or compiled for another architecture."""
    launches = [new[index].name for _, index in matching.moved_launches]
    if launches:
        yield f"kernels were launched otherwise: {_list_names(launches)}"
    if matching.moved_architectures:
        before, after = matching.moved_architectures[0]
        names = [new[index].name for _, index in matching.moved_architectures]
        pair = f"{old[before].architecture or '?'}, now {new[after].architecture or '?'}"
        yield f"kernels were compiled for another architecture ({pair}): {_list_names(names)}"


def _list_names(names: Sequence[str]) -> str:
    return list_names_for_people(names, _MAX_SHOWN_KERNELS)


def make_refusal(
    paths: Sequence[Path],
    reasons: Sequence[str],
    unchanged: Sequence[str],
    changed: Sequence[str],
    accept_command: str,
) -> UsageError:
    """Return the error that refuses a baseline, or the baselines of a folder.

    unchanged, changed: names of kernels with the code of the baseline, and with another.
    """
    total = len(unchanged) + len(changed)
    known = f"{len(unchanged):,} of {total:,} kernels have the code of the baseline, so they did not change"
    others = f"; changed: {_list_names(changed)}" if changed else ""
    path = paths[0] if len(paths) == 1 else paths[0].parent
    return UsageError(
        f"{path}: this baseline does not compare: {'; '.join(reasons)}",
        hint=f"{known}{others}. To accept the new figures of all: {accept_command}",
    )
