"""The launch that `diff` and `check` take where nobody gives one, the same for both sides of a comparison.

Without a launch nothing is executed, so that neither sectors nor trips of loops can be compared. What is not
given is assumed by rules that depend on little, so that two versions of a kernel are launched alike:

- a grid of 1,024 CTAs, spread over the axes that the code reads: 1024, 32x32 or 16x8x8;
- a block of the metadata, else of 256 threads, 32x8 where the code reads the thread's y;
- each integer parameter of 4 bytes is 65,536 (larger than a block, smaller than a grid of threads, and
  aligned). Of three and more, which are sizes and strides of matrices, each is 4,096. Of fewer in a kernel
  that reads its grid's size, to go through its data in strides of it, each is 16 times the threads;
- a parameter of 8 bytes is a pointer where the code adds it to an address (`binding.parameter_roles`) or
  never reads it, else an integer; one that metadata call a float is 1;
- of a struct, the words that the code reads are pointers and integers by the same rule.

Kernels without loops do little work, which the overhead of a launch of that size would hide. Two versions
that both have none are compared with 16 times the CTAs; in one dimension, the integers are the threads.

Where some arguments are given, no other one is assumed. The counts that follow are exact for this launch.
Whether it is a usual one, only the user knows: the report says what was assumed.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.binding.constant_reads import WORD_BYTES, find_constant_reads
from analyzer.execution.binding.number_types import POINTER_BYTES, find_number_type
from analyzer.execution.binding.parameter_layout import ParameterLayout, find_parameter_layout
from analyzer.execution.binding.parameter_roles import find_pointer_words
from analyzer.execution.sampling.launch_preparation import check_arguments
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import (
    MAX_CLUSTER_CTAS,
    NOBODY_GAVE,
    Argument,
    Dim3,
    Launch,
    Pointer,
)
from analyzer.ir.module import Kernel, Parameter
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.pipeline.loaded_program import LoadedKernel
from analyzer.text.errors import HardwareError, UsageError

ASSUMED_INTEGER = 65_536
ASSUMED_EXTENT = 4_096  # of a matrix
ASSUMED_STRIDES = 16  # of a loop over the grid's threads
ASSUMED_FLOAT = 1.0
ASSUMED_THREADS = 256
_GRIDS = (Dim3(1024), Dim3(32, 32), Dim3(16, 8, 8))  # by axes that the code reads
_LARGE_GRIDS = (Dim3(16384), Dim3(128, 128), Dim3(32, 32, 16))
_MIN_EXTENTS = 3  # integers that are sizes of matrices
_Launches = tuple[Launch, Launch]


class _Rule(Struct, frozen=True, kw_only=True):
    """What is assumed where nothing is given."""

    grid: Dim3
    block: Dim3
    integer: int = ASSUMED_INTEGER


def assume_launch(kernel: Kernel, launch: Launch) -> Launch:
    """Return the launch with all that it leaves open assumed, and what was assumed in `assumptions`.

    A kernel whose architecture is not known is left as it is. Given arguments that do not fit stay, and raise
    their error where the launch is executed.
    """
    return _complete(kernel, launch, _choose_rule(kernel, launch, has_loops=True))


def assume_pair_launches(old: LoadedKernel, new: LoadedKernel, launches: tuple[Launch, Launch]) -> _Launches:
    """Return the launches of two versions of a kernel with all that they leave open assumed alike."""
    has_loops = bool(old.loops.loops or new.loops.loops)
    rule = _choose_rule(old.kernel, launches[0], has_loops=has_loops)
    return _complete(old.kernel, launches[0], rule), _complete(new.kernel, launches[1], rule)


def _choose_rule(kernel: Kernel, launch: Launch, *, has_loops: bool) -> _Rule:
    texts = _list_texts(kernel)
    block = launch.block or _assume_block(kernel, texts)
    n_axes = 3 if _reads(texts, "SR_CTAID.Z") else 2 if _reads(texts, "SR_CTAID.Y") else 1
    if has_loops:
        grid = _GRIDS[n_axes - 1]
        return _Rule(grid=grid, block=block, integer=_choose_integer(kernel, texts, grid.count * block.count))
    grid = _LARGE_GRIDS[n_axes - 1]
    integer = grid.count * block.count if n_axes == 1 and launch.grid is None else ASSUMED_INTEGER
    return _Rule(grid=grid, block=block, integer=integer)


def _choose_integer(kernel: Kernel, texts: Sequence[str], n_threads: int) -> int:
    """Return the integer of a kernel with loops: the fewer arguments there are, the longer are the data."""
    try:
        arch = load_arch(kernel.arch)
        arguments = list(_list_assumed_arguments(kernel, find_parameter_layout(kernel, {}, arch), 1))
    except (HardwareError, UsageError):
        return ASSUMED_INTEGER
    if sum(argument.value == 1 for argument in arguments) >= _MIN_EXTENTS:
        return ASSUMED_EXTENT
    grid_size = f"c[0x0][{int(arch.constant_bank.grid_dim.value):#x}]"
    return ASSUMED_STRIDES * n_threads if _reads(texts, grid_size) else ASSUMED_INTEGER


def _complete(kernel: Kernel, launch: Launch, rule: _Rule) -> Launch:
    notes = []
    completed = launch
    if launch.grid is None:
        completed = replace(completed, grid=_fit_clusters(rule.grid, launch.cluster or kernel.cluster))
        notes.append(f"grid {completed.grid}")
    if launch.block is None:
        completed = replace(completed, block=rule.block)
        notes.append(f"block {rule.block}")
    completed, n_added = _assume_arguments(kernel, completed, rule.integer)
    if n_added:
        notes.append(f"{n_added} integer argument{'s' if n_added > 1 else ''} {rule.integer:,}")
    if not notes:
        return launch
    note = f"{NOBODY_GAVE} {', '.join(notes)}: assumed, the same for both sides"
    return replace(completed, assumptions=(*launch.assumptions, note))


def _reads(texts: Sequence[str], register: str) -> bool:
    return any(register in text for text in texts)


def _fit_clusters(grid: Dim3, cluster: Dim3 | None) -> Dim3:
    """Return a grid that clusters divide."""
    if cluster is None or max(cluster.sizes) > MAX_CLUSTER_CTAS:
        return grid
    pairs = zip(grid.sizes, cluster.sizes, strict=True)
    return Dim3(*(-(-size // part) * part for size, part in pairs))


def _list_texts(kernel: Kernel) -> list[str]:
    texts = kernel.form_table.texts
    return [texts[number] for number in sorted(set(kernel.text_ids.tolist()))]


def _assume_block(kernel: Kernel, texts: Sequence[str]) -> Dim3:
    threads = kernel.resources.block_threads or ASSUMED_THREADS
    is_plane = _reads(texts, "SR_TID.Y") and threads % WARP_SIZE == 0
    return Dim3(WARP_SIZE, threads // WARP_SIZE) if is_plane else Dim3(threads)


def _assume_arguments(kernel: Kernel, launch: Launch, integer: int) -> tuple[Launch, int]:
    """Return the launch with the scalars that nobody gave, and how many integers these are."""
    if launch.arguments:
        return launch, 0  # who gives some knows which ones matter
    try:
        layout = find_parameter_layout(kernel, {}, load_arch(kernel.arch))
        whole = replace(launch, arguments=tuple(_list_assumed_arguments(kernel, layout, integer)))
        check_arguments(kernel, whole)
    except (HardwareError, UsageError):  # such as a place behind an argument that was folded into the code
        return launch, 0
    return whole, sum(argument.value == integer for argument in whole.arguments)


def _list_assumed_arguments(kernel: Kernel, layout: ParameterLayout, integer: int) -> Iterator[Argument]:
    """Yield the integers, floats and fields of structs; pointers of whole parameters go without saying."""
    reads, pointers = find_constant_reads(kernel), find_pointer_words(kernel)
    for each in layout.parameters:
        offset = layout.base + each.offset
        if each.is_hidden or each.is_pointer:
            continue
        kind = find_number_type(each.type_name)
        if kind is not None and kind.is_float:
            yield Argument(each.ordinal, ASSUMED_FLOAT)
        elif each.size_bytes == WORD_BYTES:
            yield Argument(each.ordinal, integer)
        elif each.size_bytes == POINTER_BYTES:
            if offset in reads.words and offset not in pointers:
                yield Argument(each.ordinal, integer)
        elif each.size_bytes > POINTER_BYTES:
            words = {word - offset for word in reads.words if 0 <= word - offset < each.size_bytes}
            low_words = {word - offset for word in pointers}
            wide_words = {word - offset for word in reads.pairs}
            yield from _list_field_arguments(each, sorted(words), low_words, wide_words, integer)


def _list_field_arguments(
    parameter: Parameter, words: Sequence[int], pointers: set[int], wide_words: set[int], integer: int
) -> Iterator[Argument]:
    """Yield the fields of a struct; all places are offsets in it.

    words: those that the code reads, in their order; wide_words: low words of values of 64 bits.
    """
    upper_words: set[int] = set()
    for word in words:
        if word in upper_words:
            continue
        if word in pointers and word + POINTER_BYTES <= parameter.size_bytes:
            upper_words.add(word + WORD_BYTES)
            yield Argument(f"{parameter.ordinal}+{word}", Pointer())
            continue
        yield Argument(f"{parameter.ordinal}+{word}", integer)
        if word in wide_words and word + WORD_BYTES in words:
            upper_words.add(word + WORD_BYTES)
            yield Argument(f"{parameter.ordinal}+{word + WORD_BYTES}", 0)
