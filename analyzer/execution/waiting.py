"""Loops that go on while others do: until another warp has written a word, or no CTA is left to be run."""

from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.ir.opcode import GLOBAL_SPACES, MEMORY_KINDS, Opcode, OpKind, Semantics

_SPIN_LENGTH = 24
_SLEEPER_LENGTH = 64  # of a loop that sleeps between its looks
_WRITES = (OpKind.STORE, OpKind.REDUCTION, OpKind.ASYNC_COPY, OpKind.MMA)
_STRONG = "STRONG"


def only_waits(cfg: Cfg, loop: Loop) -> bool:
    """A short loop that reads memory at one place over and over and writes none."""
    forms = [cfg.kernel.form(row) for row in _rows(cfg, loop)]
    if len(forms) > _SLEEPER_LENGTH:
        return False
    sleeps = any(form.opcode.semantics is Semantics.SLEEP for form in forms)
    if len(forms) > _SPIN_LENGTH and not sleeps:
        return False
    written = {slot for form in forms for slot in form.written}
    reads = False
    for form in forms:
        kind = form.opcode.kind
        if kind in _WRITES:
            return False
        if kind in MEMORY_KINDS:
            if not written.isdisjoint(set(form.read)):
                return False
            reads = True
    return reads


def takes_ctas(cfg: Cfg) -> bool:
    """Whether CTAs that are done run others which were launched, but have not begun."""
    kernel = cfg.kernel
    return bool(kernel.vocabulary.mask(_takes_cta)[kernel.opcode_ids].any())


def _takes_cta(opcode: Opcode) -> bool:
    return opcode.semantics is Semantics.NEXT_CTA


def awaited_rows(cfg: Cfg, nest: LoopNest) -> frozenset[int]:
    """Loads that loops wait with: what they find at last is not what memory held before the launch."""
    is_strong = cfg.kernel.vocabulary.mask(
        lambda opcode: (
            opcode.kind is OpKind.LOAD and opcode.space in GLOBAL_SPACES and _STRONG in opcode.modifiers
        )
    )[cfg.kernel.opcode_ids]
    if not is_strong.any():
        return frozenset()
    loops = [loop for loop in nest.loops if any(is_strong[row] for row in _rows(cfg, loop))]
    return frozenset(
        row for loop in loops if only_waits(cfg, loop) for row in _rows(cfg, loop) if is_strong[row]
    )


def _rows(cfg: Cfg, loop: Loop) -> list[int]:
    return [row for block in loop.blocks for row in range(cfg.blocks[block].start, cfg.blocks[block].stop)]
