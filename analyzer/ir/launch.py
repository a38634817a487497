"""How a kernel is launched; anything may be unknown."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dim3:
    x: int
    y: int = 1
    z: int = 1

    @property
    def count(self) -> int:
        return self.x * self.y * self.z

    def __str__(self) -> str:
        return f"{self.x}x{self.y}x{self.z}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Launch dimensions and shared memory asked for at launch; None where not known."""

    grid: Dim3 | None = None
    block: Dim3 | None = None
    dynamic_shared_bytes: int | None = None
