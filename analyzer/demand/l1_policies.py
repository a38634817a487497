"""What memory instructions do in the L1: look up, fill, or pass it by."""

from enum import StrEnum

from msgspec import Struct

from analyzer.ir.module import Kernel
from analyzer.ir.opcode import ATOMIC_KINDS, Opcode, OpKind


class L1Policy(StrEnum):
    """What a memory instruction does in the L1."""

    READ_ALLOCATE = "cached"  # looks a sector up, and puts it in
    READ_NO_ALLOCATE = "looked_up"  # looks it up, and puts nothing in
    BYPASS = "beyond"  # goes to the L2 whatever the L1 holds
    WRITE_NO_ALLOCATE = "written"  # writes through, puts nothing in
    WRITE_ALLOCATE = "kept"  # writes and puts the sector in


class _PolicyRule(Struct, frozen=True):
    """A route for instructions of these kinds that have all of `has` and one of `any`, if it names some."""

    policy: L1Policy
    kinds: frozenset[OpKind]
    required_modifiers: frozenset[str] = frozenset()
    any_modifiers: frozenset[str] = frozenset()


_LOAD_KINDS = frozenset({OpKind.LOAD, OpKind.ASYNC_COPY})
_STORE_KINDS = frozenset({OpKind.STORE})
_SCOPES_BEYOND_SM = frozenset({"GPU", "SYS", "VC"})
# The first that fits; PTX ISA, cache operators and scopes: .cg and a scope of the GPU or the system bypass
# the L1, .cv and volatile are of the system's scope. On sm_70 .SYS without .STRONG is every plain load.
_POLICY_RULES = (
    _PolicyRule(L1Policy.BYPASS, ATOMIC_KINDS),
    _PolicyRule(
        L1Policy.WRITE_NO_ALLOCATE,
        _STORE_KINDS,
        required_modifiers=frozenset({"STRONG"}),
        any_modifiers=_SCOPES_BEYOND_SM,
    ),
    _PolicyRule(L1Policy.WRITE_ALLOCATE, _STORE_KINDS),
    _PolicyRule(
        L1Policy.BYPASS,
        _LOAD_KINDS,
        required_modifiers=frozenset({"STRONG"}),
        any_modifiers=_SCOPES_BEYOND_SM,
    ),
    _PolicyRule(L1Policy.BYPASS, _LOAD_KINDS, any_modifiers=frozenset({"BYPASS", "CG", "CV", "MMIO"})),
    _PolicyRule(L1Policy.READ_NO_ALLOCATE, _LOAD_KINDS, any_modifiers=frozenset({"NA"})),
)


def find_l1_policy(opcode: Opcode) -> L1Policy:
    """What a memory instruction does in the L1, by its kind and modifiers."""
    present = frozenset(opcode.modifiers)
    for rule in _POLICY_RULES:
        if (
            opcode.kind in rule.kinds
            and rule.required_modifiers <= present
            and (not rule.any_modifiers or rule.any_modifiers & present)
        ):
            return rule.policy
    return L1Policy.READ_ALLOCATE


def find_l1_policies(kernel: Kernel) -> tuple[L1Policy, ...]:
    """Routes of all instructions; of those that are no memory instructions it means nothing."""
    policies = [find_l1_policy(opcode) for opcode in kernel.form_table.opcodes]
    return tuple(policies[number] for number in kernel.opcode_ids.tolist())
