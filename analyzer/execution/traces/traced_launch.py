"""Merging of a recorded launch with the launch options of the user, which it overrides."""

from collections.abc import Iterator

from msgspec.structs import replace

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.ir.launch import Launch
from analyzer.ir.module import KernelResources
from analyzer.ir.trace import TraceHeader


def merge_traced_launch(profile: ExecutionProfile, user_launch: Launch) -> tuple[Launch, ExecutionProfile]:
    """Return the launch with what was traced, and the profile with a note of what the trace contradicts."""
    recorded_launch = profile.launch
    dynamic = recorded_launch.dynamic_shared_bytes
    launch = replace(
        user_launch,
        grid=recorded_launch.grid,
        block=recorded_launch.block,
        dynamic_shared_bytes=user_launch.dynamic_shared_bytes if dynamic is None else dynamic,
    )
    if notes := tuple(_describe_overrides(user_launch, launch)):
        profile = replace(profile, assumptions=(*notes, *profile.assumptions))
    return launch, profile


def _describe_overrides(user_launch: Launch, traced: Launch) -> Iterator[str]:
    """Yield a note for each dimension that the user gives and the trace contradicts."""
    for what, wanted, found in (
        ("grid", user_launch.grid, traced.grid),
        ("block", user_launch.block, traced.block),
    ):
        if wanted is not None and found is not None and wanted != found:
            yield f"{what} {wanted} is not used: {found} was traced"


def merge_traced_registers(resources: KernelResources, header: TraceHeader) -> KernelResources:
    """Return the resources with the traced number of registers where only a guess is known."""
    if not header.registers or resources.has_exact_registers:
        return resources
    return replace(resources, registers=header.registers, has_exact_registers=True)
