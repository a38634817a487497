"""The control fields of a 128-bit instruction word (Volta and later)."""

from msgspec import Struct


class ControlCode(Struct, frozen=True):
    """Scheduling information that the compiler encodes in one instruction."""

    stall_cycles: int  # before the warp's next instruction may issue
    has_yield: bool  # hint to switch to another warp
    write_barrier: int | None  # scoreboard that is released when the result is written
    read_barrier: int | None  # scoreboard that is released when the operands are read
    wait_mask: int  # bit i: wait for scoreboard i
    reuse_mask: int  # bit i: keep source slot i in the operand cache

    def __str__(self) -> str:
        """Return the column that CuAssembler prints: `[B------:R-:W2:-:S02]`."""
        waits = "".join(str(i) if self.wait_mask >> i & 1 else "-" for i in range(6))
        read = "-" if self.read_barrier is None else str(self.read_barrier)
        write = "-" if self.write_barrier is None else str(self.write_barrier)
        yields = "Y" if self.has_yield else "-"
        return f"[B{waits}:R{read}:W{write}:{yields}:S{self.stall_cycles:02d}]"
