"""GPUs that kernels can be put on, by the names that users give."""

from collections.abc import Sequence
from functools import cache

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import list_known_archs, load_all_gpus, load_arch, load_gpu
from analyzer.text.errors import HardwareError


def find_gpus(gpu: str | Sequence[str] | None) -> tuple[Gpu, ...]:
    """Return GPUs by name, each once; none for None, all of them for "all".

    Raises HardwareError for a name that fits nothing, or a GPU without figures for kernels.
    """
    names = [gpu] if isinstance(gpu, str) else list(gpu or ())
    found: list[Gpu] = []
    for name in names:
        found += (
            load_all_gpus(kernels_only=True) if name == "all" else [_check_has_kernel_figures(load_gpu(name))]
        )
    return tuple({g.key: g for g in found}.values())


def _check_has_kernel_figures(gpu: Gpu) -> Gpu:
    if gpu.arch is None:
        raise HardwareError(
            f"{gpu.name} ({gpu.file.arch}) has figures for operator models only",
            hint="`warplens predict`, `forecast`, `serving` and `iteration` take it; code needs one of: "
            + ", ".join(list_known_archs()),
        )
    return gpu


def find_single_gpu(name: str | None, arch: str) -> Gpu:
    """Return the GPU of a name, else the typical one of the architecture. Raises HardwareError."""
    found = find_gpus(name) or find_typical_gpus(arch)
    if not found:
        raise HardwareError(f"no GPU is known for {arch or 'this dump'}", hint="name one with --gpu")
    if len(found) > 1:
        raise HardwareError(f"{name}: one GPU at a time", hint="name one, such as h100")
    return found[0]


@cache
def find_typical_gpus(arch: str) -> tuple[Gpu, ...]:
    """Return the GPU that is taken where none is named; none for an architecture without figures."""
    try:
        name = load_arch(arch).typical_gpu
    except HardwareError:
        return ()
    return () if name is None else (load_gpu(name),)
