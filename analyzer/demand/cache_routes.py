"""What memory instructions do in the L1: look up, fill, or pass it by."""

from enum import StrEnum

from msgspec import Struct

from analyzer.ir.opcode import ATOMIC_KINDS, Opcode, OpKind
from analyzer.ir.program import Kernel


class Route(StrEnum):
    """What a memory instruction does in the L1."""

    CACHED = "cached"  # looks a sector up, and puts it in
    LOOKED_UP = "looked_up"  # looks it up, and puts nothing in
    BEYOND = "beyond"  # goes to the L2 whatever the L1 holds
    WRITTEN = "written"  # writes through, puts nothing in
    KEPT = "kept"  # writes and puts the sector in


class _RouteRule(Struct, frozen=True):
    """A route for instructions of these kinds that have all of `has` and one of `any`, if it names some."""

    route: Route
    kinds: frozenset[OpKind]
    has: frozenset[str] = frozenset()
    any: frozenset[str] = frozenset()


_LOADS = frozenset({OpKind.LOAD, OpKind.ASYNC_COPY})
_STORES = frozenset({OpKind.STORE})
_BEYOND_SM = frozenset({"GPU", "SYS", "VC"})
# The first that fits; PTX ISA, cache operators and scopes: .cg and a scope of the GPU or the system bypass
# the L1, .cv and volatile are of the system's scope. On sm_70 .SYS without .STRONG is every plain load.
_ROUTE_RULES = (
    _RouteRule(Route.BEYOND, ATOMIC_KINDS),
    _RouteRule(Route.WRITTEN, _STORES, has=frozenset({"STRONG"}), any=_BEYOND_SM),
    _RouteRule(Route.KEPT, _STORES),
    _RouteRule(Route.BEYOND, _LOADS, has=frozenset({"STRONG"}), any=_BEYOND_SM),
    _RouteRule(Route.BEYOND, _LOADS, any=frozenset({"BYPASS", "CG", "CV", "MMIO"})),
    _RouteRule(Route.LOOKED_UP, _LOADS, any=frozenset({"NA"})),
)


def route_of(opcode: Opcode) -> Route:
    """What a memory instruction does in the L1, by its kind and modifiers."""
    present = frozenset(opcode.modifiers)
    for rule in _ROUTE_RULES:
        if opcode.kind in rule.kinds and rule.has <= present and (not rule.any or rule.any & present):
            return rule.route
    return Route.CACHED


def routes_of(kernel: Kernel) -> tuple[Route, ...]:
    """Routes of all instructions; of those that are no memory instructions it means nothing."""
    routes = [route_of(opcode) for opcode in kernel.vocabulary.opcodes]
    return tuple(routes[number] for number in kernel.opcode_ids.tolist())
