"""Options that several subcommands share, and how their values are read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from analyzer.ir.launch import Dim3, Launch
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.pipeline import Options, Program

_MAX_EXTENT = 2**31 - 1
_MAX_THREADS = 1024

Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """What `analyze` and `annotate` take alike."""

    files: tuple[str, ...]
    gpu: tuple[str, ...]
    kernel: tuple[str, ...]
    grid: str | None
    block: str | None
    dynamic_shared: int | None
    trip: tuple[str, ...]
    res_usage: str | None

    def load(self) -> "list[Program]":
        """The inputs, read. Raises InputError or UsageError."""
        from analyzer.pipeline import load

        if self.res_usage and len(self.files) > 1:
            raise UsageError("--res-usage goes with one FILE")
        return [load(path, usage_path=self.res_usage) for path in self.files]

    def pipeline_options(self, *, listing: bool, min_coverage: float = 0.0) -> "Options":
        """The pipeline's options. Raises UsageError."""
        from analyzer.execution.counts import parse_trip_rule
        from analyzer.pipeline import Options

        return Options(
            kernels=self.kernel,
            trips=tuple(parse_trip_rule(text) for text in self.trip),
            launch=Launch(
                grid=parse_dims("--grid", self.grid, _MAX_EXTENT),
                block=parse_dims("--block", self.block, _MAX_THREADS),
                dynamic_shared_bytes=self.dynamic_shared,
            ),
            listing=listing,
            min_coverage=min_coverage,
        )


_DECORATORS = (
    click.argument("files", nargs=-1, required=True, metavar="FILE..."),
    click.option("--gpu", "-g", multiple=True, help="GPU by name or TOML file, repeatable; `all` for all."),
    click.option("--kernel", "-k", multiple=True, help="Name, glob or part of a name, or #N; repeatable."),
    click.option("--grid", help="CTAs of the launch: 132,1,1 or 132x1x1 or 132."),
    click.option("--block", help="Threads of a CTA, written as --grid."),
    click.option(
        "--dynamic-shared", type=click.IntRange(min=0), help="Bytes of dynamic shared memory per CTA."
    ),
    click.option(
        "--trip", multiple=True, help="Loop trips: N for all unknown, ADDRESS=N or FILE:LINE=N for one."
    ),
    click.option(
        "--res-usage", help="Text of cuobjdump -res-usage; FILE's own stem with .res is looked for."
    ),
)


def input_options(function: Command) -> Command:
    """Adds the shared arguments and options; the command gets them as one `InputOptions`."""

    @wraps(function)
    def wrapper(**values: Any) -> None:
        shared = {name: values.pop(name) for name in InputOptions.__slots__}
        function(InputOptions(**shared), **values)

    decorated: Command = wrapper
    for decorator in reversed(_DECORATORS):
        decorated = decorator(decorated)
    return decorated


def parse_dims(option: str, text: str | None, most: int) -> Dim3 | None:
    """`132`, `132,1,1` or `132x1x1`; the product may be at most `most`. Raises UsageError."""
    if text is None:
        return None
    parts = [part.strip() for part in re.split(r"[,x]", text.lower())]
    if not 1 <= len(parts) <= 3 or not all(re.fullmatch(r"[0-9]{1,10}", part) for part in parts):
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
