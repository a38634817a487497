"""Hit rates of memory instructions: which level serves their sectors, and how long loads take then."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class MemoryLatencies(Struct, frozen=True):
    """Cycles from issue to use of a load, by the level that serves it."""

    l1_cycles: float
    l2_cycles: float
    dram_cycles: float


class HitRates(Struct, frozen=True, kw_only=True):
    """Hit rates of the sectors of one instruction, or of several."""

    n_requests: int  # of the recorded CTAs
    n_sectors: int  # of the recorded CTAs
    l1_hit_rate: float
    l2_hit_rate: float  # of the sectors that miss the L1, 0 if none does
    # Shares of requests whose slowest sector is served by a level; they sum to 1.
    l1_request_share: float
    l2_request_share: float
    dram_request_share: float
    lines_per_request: float  # distinct cache lines, the mean
    sector_utilization: float  # touched part of the sectors, by whichever instruction
    store_sector_utilization: float = 1.0  # part of the sectors that stores write

    @property
    def l1_miss_rate(self) -> float:
        """Share of sectors that miss the L1."""
        return 1.0 - self.l1_hit_rate

    @property
    def dram_share(self) -> float:
        """Share of sectors that come from DRAM."""
        return self.l1_miss_rate * (1.0 - self.l2_hit_rate)

    def with_scaled_dram_share(self, kept: float) -> "HitRates":
        """Return rates with this part of the DRAM sectors still from DRAM, the rest from the L2."""
        return replace(
            self,
            l2_hit_rate=1.0 - (1.0 - self.l2_hit_rate) * kept,
            l2_request_share=self.l2_request_share + self.dram_request_share * (1.0 - kept),
            dram_request_share=self.dram_request_share * kept,
        )

    def compute_amat_cycles(self, latencies: MemoryLatencies) -> float:
        """Return the average memory access time of a request; a warp waits for its slowest sector."""
        return (
            self.l1_request_share * latencies.l1_cycles
            + self.l2_request_share * latencies.l2_cycles
            + self.dram_request_share * latencies.dram_cycles
        )


class KernelHitRates(Struct, frozen=True, kw_only=True):
    """Hit rates of a kernel's memory instructions."""

    by_row: Mapping[int, HitRates] = field(default_factory=dict)
    loads: HitRates | None = None  # of all loads; None without any
    total: HitRates | None = None  # of all instructions; None without any
    is_complete: bool = True  # False: the stream was cut, so that first touches weigh too much

    def compute_amat_cycles(self, row: int, latencies: MemoryLatencies) -> float | None:
        """Return the average memory access time of a row; None if nothing was recorded of it."""
        found = self.by_row.get(row)
        return None if found is None else found.compute_amat_cycles(latencies)
