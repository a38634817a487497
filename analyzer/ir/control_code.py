"""The control fields of a 128-bit instruction word (Volta and later)."""

from msgspec import Struct


class ControlCode(Struct, frozen=True):
    """What the compiler tells the scheduler about one instruction.

    Masks are ints: bit i of wait_mask is scoreboard i, bit i of reuse_mask is source slot i.
    """

    stall_cycles: int
    has_yield: bool
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int
    reuse_mask: int

    def __str__(self) -> str:
        """The column that maxas and CuAssembler print: [B------:R-:W2:-:S02]."""
        waits = "".join(str(i) if self.wait_mask >> i & 1 else "-" for i in range(6))
        read = "-" if self.read_barrier is None else str(self.read_barrier)
        write = "-" if self.write_barrier is None else str(self.write_barrier)
        yields = "Y" if self.has_yield else "-"
        return f"[B{waits}:R{read}:W{write}:{yields}:S{self.stall_cycles:02d}]"
