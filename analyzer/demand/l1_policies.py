"""L1 policies of memory instructions: look up, allocate, or bypass."""

from enum import StrEnum

from msgspec import Struct

from analyzer.ir.module import Kernel
from analyzer.ir.opcode import ATOMIC_KINDS, Opcode, OpKind


class L1Policy(StrEnum):
    """Policy of a memory instruction in the L1."""

    READ_ALLOCATE = "cached"  # looks a sector up, and allocates it
    READ_NO_ALLOCATE = "looked_up"  # looks it up only
    BYPASS = "beyond"  # goes to the L2 whatever the L1 holds
    WRITE_NO_ALLOCATE = "written"  # writes through only
    WRITE_ALLOCATE = "kept"  # writes through and allocates


class _PolicyRule(Struct, frozen=True):
    """Policy of the instructions of some kinds with certain modifiers."""

    policy: L1Policy
    kinds: frozenset[OpKind]
    required_modifiers: frozenset[str] = frozenset()  # all of them
    any_modifiers: frozenset[str] = frozenset()  # at least one of them, unless empty


_LOAD_KINDS = frozenset({OpKind.LOAD, OpKind.ASYNC_COPY})
_STORE_KINDS = frozenset({OpKind.STORE})
_SCOPES_BEYOND_SM = frozenset({"GPU", "SYS", "VC"})
# The first rule that matches applies. PTX ISA, cache operators and scopes: .cg and the scopes of the GPU or
# the system bypass the L1; .cv and volatile have the system's scope. On sm_70 every plain load has .SYS, but
# no .STRONG.
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
    """Return the L1 policy of a memory instruction, by its kind and modifiers."""
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
    """Return the L1 policies of all instructions; meaningless for those that access no memory."""
    policies = [find_l1_policy(opcode) for opcode in kernel.form_table.opcodes]
    return tuple(policies[number] for number in kernel.opcode_ids.tolist())
