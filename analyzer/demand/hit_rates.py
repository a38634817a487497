"""Which memory level serves the sectors of each instruction, and how long its loads take then."""

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace


class MemoryLatencies(Struct, frozen=True):
    """Cycles from issue to use of a load that each level serves."""

    l1_cycles: float
    l2_cycles: float
    dram_cycles: float


class HitRates(Struct, frozen=True, kw_only=True):
    """Where the sectors of one instruction, or of all, are served.

    requests and sectors are those of the recorded CTAs. l1_hit_share: of all sectors; l2_hit_share: of those
    that went beyond the L1, 0 where none did. waits_l1, waits_l2, waits_dram: shares of requests whose
    slowest sector is served there; they sum to 1. lines: distinct cache lines of a request, the mean;
    density: touched part of the sectors, whichever instruction touches them; stored_density: part of the
    sectors that some store writes.
    """

    n_requests: int
    n_sectors: int
    l1_hit_rate: float
    l2_hit_rate: float
    l1_request_share: float
    l2_request_share: float
    dram_request_share: float
    lines_per_request: float
    sector_utilization: float
    store_sector_utilization: float = 1.0

    @property
    def l1_miss_rate(self) -> float:
        """Sectors that go beyond the L1."""
        return 1.0 - self.l1_hit_rate

    @property
    def dram_share(self) -> float:
        """Sectors that go beyond the L2."""
        return self.l1_miss_rate * (1.0 - self.l2_hit_rate)

    def with_scaled_dram_share(self, kept: float) -> "HitRates":
        """The same, but that the L2 serves all but this part of what DRAM served."""
        return replace(
            self,
            l2_hit_rate=1.0 - (1.0 - self.l2_hit_rate) * kept,
            l2_request_share=self.l2_request_share + self.dram_request_share * (1.0 - kept),
            dram_request_share=self.dram_request_share * kept,
        )

    def compute_amat_cycles(self, latencies: MemoryLatencies) -> float:
        """Average memory access time of a request: a warp waits for the slowest of its sectors."""
        return (
            self.l1_request_share * latencies.l1_cycles
            + self.l2_request_share * latencies.l2_cycles
            + self.dram_request_share * latencies.dram_cycles
        )


class KernelHitRates(Struct, frozen=True, kw_only=True):
    """Rates by instruction row; `loads` and `total`: of all that load, of all. None where there is none.

    is_complete: the stream was recorded to its end; where not, first touches weigh more than they should.
    """

    by_row: Mapping[int, HitRates] = field(default_factory=dict)
    loads: HitRates | None = None
    total: HitRates | None = None
    is_complete: bool = True

    def compute_amat_cycles(self, row: int, latencies: MemoryLatencies) -> float | None:
        """Average memory access time at a row; None where nothing was recorded of it."""
        found = self.by_row.get(row)
        return None if found is None else found.compute_amat_cycles(latencies)
