"""The launch that `diff` and `check` take where nobody gives one, the same for both sides of a comparison.

Without a launch nothing is executed, so that neither sectors nor trips of loops can be compared. What is not
given is assumed by rules that depend on little, so that two versions of a kernel are launched alike:

- a grid of 1,024 CTAs, spread over the axes that the code reads: 1024, 32x32 or 16x8x8;
- a block of the metadata, else of 256 threads, 32x8 where the code reads the thread's y;
- each integer parameter of 4 bytes is 65,536 (larger than a block, smaller than a grid of threads, and
  aligned), each one of 8 bytes a pointer, as everywhere; a parameter that metadata call a float is 1.

The counts that follow are exact for this launch. Whether it is a usual one, only the user knows: the report
says what was assumed.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from analyzer.execution.binding.argument_targets import resolve_targets
from analyzer.execution.binding.parameter_layout import find_parameter_layout
from analyzer.execution.sampling.launch_preparation import check_arguments
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.launch import MAX_CLUSTER_CTAS, Argument, ArgumentValue, Dim3, Launch
from analyzer.ir.module import Kernel, Parameter
from analyzer.ir.scheduling import WARP_SIZE
from analyzer.text.errors import HardwareError, UsageError

ASSUMED_INTEGER = 65_536
ASSUMED_FLOAT = 1.0
ASSUMED_THREADS = 256
_GRIDS = {1: Dim3(1024), 2: Dim3(32, 32), 3: Dim3(16, 8, 8)}
_WORD_BYTES = 4
_FLOAT_TYPES = ("fp", "bf", "f")  # of Triton


def assume_launch(kernel: Kernel, launch: Launch) -> Launch:
    """Return the launch with all that it leaves open assumed, and what was assumed in `assumptions`.

    A kernel whose architecture is not known is left as it is. Given arguments that do not fit stay, and raise
    their error where the launch is executed.
    """
    texts = _list_texts(kernel)
    notes = []
    if launch.block is None:
        launch = replace(launch, block=_assume_block(kernel, texts))
        notes.append(f"block {launch.block}")
    if launch.grid is None:
        launch = replace(launch, grid=_assume_grid(kernel, launch, texts))
        notes.insert(0, f"grid {launch.grid}")
    completed, n_added = _assume_arguments(kernel, launch)
    if n_added:
        notes.append(f"{n_added} integer argument{'s' if n_added > 1 else ''} {ASSUMED_INTEGER:,}")
    if not notes:
        return launch
    note = f"nobody gave {', '.join(notes)}: assumed, the same for both sides"
    return replace(completed, assumptions=(*launch.assumptions, note))


def _list_texts(kernel: Kernel) -> list[str]:
    texts = kernel.form_table.texts
    return [texts[number] for number in sorted(set(kernel.text_ids.tolist()))]


def _assume_block(kernel: Kernel, texts: Sequence[str]) -> Dim3:
    threads = kernel.resources.block_threads or ASSUMED_THREADS
    is_plane = any("SR_TID.Y" in text for text in texts) and threads % WARP_SIZE == 0
    return Dim3(WARP_SIZE, threads // WARP_SIZE) if is_plane else Dim3(threads)


def _assume_grid(kernel: Kernel, launch: Launch, texts: Sequence[str]) -> Dim3:
    if any("SR_CTAID.Z" in text for text in texts):
        n_axes = 3
    else:
        n_axes = 2 if any("SR_CTAID.Y" in text for text in texts) else 1
    cluster = launch.cluster or kernel.cluster or Dim3(1)
    if max(cluster.sizes) > MAX_CLUSTER_CTAS:
        return _GRIDS[n_axes]
    pairs = zip(_GRIDS[n_axes].sizes, cluster.sizes, strict=True)
    return Dim3(*(-(-size // part) * part for size, part in pairs))


def _assume_arguments(kernel: Kernel, launch: Launch) -> tuple[Launch, int]:
    """Return the launch with the scalars that nobody gave, and how many integers these are."""
    try:
        arch = load_arch(kernel.arch)
        targets = [target for target, _ in resolve_targets(kernel, launch.arguments)]
        parameters = find_parameter_layout(kernel, {}, arch).parameters
    except (HardwareError, UsageError):
        return launch, 0
    if any(target.bank_offset is not None for target in targets):
        return launch, 0  # given by place in the bank: which parameters these are is not asked
    given = {target.ordinal for target in targets}
    added = [
        Argument(each.ordinal, value)
        for each in parameters
        if each.ordinal not in given and (value := _assume_value(each)) is not None
    ]
    whole = replace(launch, arguments=(*launch.arguments, *added))
    try:
        check_arguments(kernel, whole)
    except UsageError:  # such as a place behind an argument that was folded into the code
        return launch, 0
    return whole, sum(argument.value == ASSUMED_INTEGER for argument in added)


def _assume_value(parameter: Parameter) -> ArgumentValue | None:
    if parameter.is_hidden or parameter.is_pointer or parameter.size_bytes != _WORD_BYTES:
        return None
    return ASSUMED_FLOAT if parameter.type_name.startswith(_FLOAT_TYPES) else ASSUMED_INTEGER
