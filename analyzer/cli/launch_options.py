"""Options for the launch of kernels and the outcome of their branches."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.cli.path_types import ARGUMENT_TEXT, INPUT_PATH
from analyzer.ir.launch import MAX_BLOCK_THREADS, MAX_GRID_DIMS, Argument, Dim3, Launch, Timing, check_launch
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.execution.profile.branch_rules import BranchTakenRule
    from analyzer.ir.launch import LaunchTable

_MAX_EXTENT = max(MAX_GRID_DIMS)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DIMENSION_OPTIONS: tuple[Decorator, ...] = (
    click.option("--grid", help="CTAs of the launch: 132,1,1 or 132x1x1 or 132."),
    click.option("--block", help="Threads of a CTA, written as --grid."),
    click.option("--cluster", help="CTAs of a cluster, written as --grid."),
    click.option(
        "--dynamic-shared", type=click.IntRange(min=0), help="Bytes of dynamic shared memory per CTA."
    ),
    click.option(
        "--arg",
        multiple=True,
        type=ARGUMENT_TEXT,
        metavar="WHICH=VALUE",
        help="Argument by place from 0 or by name: a number, ptr, zeros, fill:7, fill:i64:7, null, tensormap "
        "or @data.npy; repeatable.",
    ),
)
LAUNCH_OPTIONS: tuple[Decorator, ...] = (
    *_DIMENSION_OPTIONS,
    click.option("--clock", type=float, help="SM clock in MHz while it runs, where it is locked or known."),
    click.option(
        "--cold-l2", is_flag=True, help="The L2 holds nothing of the data before; else the last launch's."
    ),
    click.option(
        "--timing",
        type=click.Choice([timing.value for timing in Timing]),
        default=Timing.INTERVAL.value,
        show_default=True,
        help="Time to predict: from launch to launch, of the kernel alone, or Nsight Compute's duration.",
    ),
    click.option("--launch", type=INPUT_PATH, help="JSON file of launches, by globs of kernel names."),
    click.option(
        "--taken",
        multiple=True,
        metavar="ADDRESS=yes|no|SHARE",
        help="Which way a branch goes that nothing else settles; repeatable.",
    ),
)


def dimension_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the launch's dimensions and arguments to a command."""
    for decorator in reversed(_DIMENSION_OPTIONS):
        function = decorator(function)
    return function


def parse_launch(
    *,
    grid: str | None,
    block: str | None,
    cluster: str | None,
    dynamic_shared: int | None,
    arguments: Sequence[str],
    clock: float | None = None,
    cold_l2: bool = False,
    timing: str = Timing.INTERVAL.value,
) -> Launch:
    """Return the launch that the options describe. Raises UsageError."""
    launch = Launch(
        grid=parse_dims("--grid", grid, _MAX_EXTENT),
        block=parse_dims("--block", block, MAX_BLOCK_THREADS),
        cluster=parse_dims("--cluster", cluster, _MAX_EXTENT),
        dynamic_shared_bytes=dynamic_shared,
        arguments=parse_arguments(arguments),
        clock_mhz=clock,
        l2_is_cold=cold_l2,
        timing=Timing(timing),
    )
    check_launch(launch)
    return launch


def parse_arguments(texts: Sequence[str]) -> tuple[Argument, ...]:
    """Return the values of --arg. Raises UsageError."""
    if not texts:
        return ()
    from analyzer.execution.binding.argument_parser import parse_argument

    return tuple(parse_argument(text) for text in texts)


def load_launch_table(path: Path | None) -> "LaunchTable | None":
    """Read the file that --launch names. Raises UsageError."""
    if path is None:
        return None
    from analyzer.execution.binding.launch_file import load_launch_file

    return load_launch_file(path)


def parse_taken_rules(texts: Sequence[str]) -> "tuple[BranchTakenRule, ...]":
    """Return the values of --taken. Raises UsageError."""
    from analyzer.execution.profile.branch_rules import parse_taken_rule

    rules = tuple(parse_taken_rule(text) for text in texts)
    addresses = [rule.address for rule in rules]
    repeated = next((address for address in addresses if addresses.count(address) > 1), None)
    if repeated is not None:
        raise UsageError(f"--taken {repeated:#x} is given twice", hint="give each branch once")
    return rules


def parse_dims(option: str, text: str | None, most: int) -> Dim3 | None:
    """Parse `132`, `132,1,1` or `132x1x1`; a block may have at most `most` threads. Raises UsageError."""
    if text is None:
        return None
    parts = [part.strip() for part in re.split(r"[,x]", text.lower())]
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"[0-9]{1,18}", part) for part in parts):
        raise UsageError(
            f"{option} {text}: not one to three positive numbers", hint=f"write {option} 128,1,1"
        )
    numbers = [int(part) for part in parts]
    dims = Dim3(*numbers)
    if min(numbers) < 1 or max(numbers) > _MAX_EXTENT:
        raise UsageError(f"{option} {text}: each number must be 1 to {_MAX_EXTENT}")
    if option == "--block" and dims.count > most:
        raise UsageError(f"{option} {text}: {dims.count:,} threads, a CTA has at most {most:,}")
    return dims
