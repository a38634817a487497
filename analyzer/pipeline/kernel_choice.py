"""Kernels that the user wants, and the GPUs that they are put on, by the facts of the inputs alone."""

import re
from collections.abc import Iterator, Sequence

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_selection import find_typical_gpus
from analyzer.models.portability import find_best_arch_indices
from analyzer.report.input_entries import InputFacts, KernelFacts
from analyzer.text.errors import UsageError
from analyzer.text.kernel_names import find_matching_names, find_nearest_names, list_names_for_people

_ORDINAL = re.compile(r"#\d+")


def place_kernels(
    inputs: Sequence[InputFacts], patterns: Sequence[str], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[int, KernelFacts, tuple[Gpu, ...]]]:
    """Yield the chosen kernels, each with the index of its input and its GPUs.

    gpus: that the user named; without any, those that are typical of a kernel's architecture.
    Raises UsageError for a pattern that fits nothing.
    """
    for index, kernels in enumerate(choose_kernel_facts(inputs, patterns)):
        for kernel, own in assign_gpus(kernels, gpus):
            yield index, kernel, own or find_typical_gpus(kernel.arch)


def assign_gpus(
    kernels: Sequence[KernelFacts], gpus: tuple[Gpu, ...]
) -> Iterator[tuple[KernelFacts, tuple[Gpu, ...]]]:
    """Yield each kernel of an input with the GPUs that run it rather than its other versions.

    A fat binary holds a kernel for several architectures: each GPU takes the nearest of them. Versions that
    no GPU takes are left out.
    """
    versions: dict[str, list[str]] = {}
    places = []
    for kernel in kernels:
        same = versions.setdefault(kernel.name, [])
        places.append(len(same))
        same.append(kernel.arch)
    # What each GPU takes depends on the architectures alone, which are the same for most names.
    takes: dict[tuple[str, ...], list[set[int]]] = {}
    for kernel, place in zip(kernels, places, strict=True):
        archs = tuple(versions[kernel.name])
        if archs not in takes:
            takes[archs] = [set(find_best_arch_indices(archs, gpu)) for gpu in gpus]
        own = tuple(gpu for gpu, taken in zip(gpus, takes[archs], strict=True) if place in taken)
        if own or not gpus:
            yield kernel, own


def choose_kernel_facts(inputs: Sequence[InputFacts], patterns: Sequence[str]) -> list[list[KernelFacts]]:
    """Return the kernels of each input that some pattern fits, all where there is no pattern.

    A name that equals one kernel's in any input leaves out those of which it is a part; `#N` is the Nth
    kernel of each. Raises UsageError for a pattern that fits nothing.
    """
    if not patterns:
        return [list(facts.kernels) for facts in inputs]
    kernels = [kernel for facts in inputs for kernel in facts.kernels]
    names = [kernel.name for kernel in kernels]
    chosen = set[int]()
    for pattern in patterns:
        if _ORDINAL.fullmatch(pattern):
            found = [index for index, one in enumerate(kernels) if one.ordinal == int(pattern[1:])]
        else:
            found = find_matching_names(names, pattern)
        if not found:
            raise make_no_kernel_error(pattern, names)
        chosen.update(id(kernels[index]) for index in found)
    return [[kernel for kernel in facts.kernels if id(kernel) in chosen] for facts in inputs]


def make_no_kernel_error(pattern: str, known: Sequence[str]) -> UsageError:
    """Return the error of a name that fits none of the known ones, with the nearest of them."""
    near = find_nearest_names(known, pattern)
    hint = f"the input has: {list_names_for_people(sorted(known))}"
    if near:
        hint = f"did you mean {list_names_for_people(near)}?"
    return UsageError(f"no kernel fits {pattern}", hint=hint)
