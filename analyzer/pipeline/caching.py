"""What more is executed of a launch where a model asks: addresses for caches, mbarriers for pipelines."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from analyzer.demand.cache_routes import Route, routes_of
from analyzer.execution.access_log import MemoryLog
from analyzer.execution.counts import TripRule
from analyzer.execution.hearing import Ears
from analyzer.execution.profile import ExecutionProfile
from analyzer.execution.rules import TakenRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy, allocated_shared_bytes
from analyzer.hardware.schema import Arch
from analyzer.ir.opcode import MEMORY_KINDS, Space
from analyzer.pipeline.executing import Prepared

if TYPE_CHECKING:  # most kernels need none of it: what is loaded late starts no run later
    from analyzer.demand.caches import CacheFigures, CacheRates
    from analyzer.execution.rings import Rings
    from analyzer.execution.streams import AddressStream
    from analyzer.pipeline.windows import DramTraffic

_LEAST_SECTORS = 4_000
_LEAST_ACTIONS = 400
_GLOBAL = frozenset({Space.GLOBAL, Space.GENERIC, Space.LOCAL})


class CacheLab(Struct, eq=False):
    """Records the addresses of a launch once, and simulates caches of each size once; rings likewise.

    The CTAs are those that the first GPU asked for would hold: another one holds others of them, which
    hardly ever read in another way. Of `n_kernels` kernels each gets its share of the work.
    """

    ready: Prepared
    profile: ExecutionProfile
    log: MemoryLog | None = None
    ears: Ears | None = None
    n_kernels: int = 1
    trips: tuple[TripRule, ...] = ()
    taken: tuple[TakenRule, ...] = ()
    _stream: "AddressStream | None" = None
    _rates: "dict[tuple[CacheFigures, float | None], CacheRates]" = field(default_factory=dict)
    _from_dram: "dict[tuple[int, float], DramTraffic]" = field(default_factory=dict)
    _routes: tuple[Route, ...] = ()
    _rings: "Rings | None" = None
    _has_looked_for_rings: bool = False

    def rings(self) -> "Rings | None":
        """Rings of mbarriers; None where the kernel has none, or their addresses are not known."""
        from analyzer.execution.mbarriers import find_rings
        from analyzer.execution.slicing import has_mbarriers

        cfg = self.ready.compiled.cfg
        if not self._has_looked_for_rings and has_mbarriers(cfg):
            ready = self.ready
            self._rings = find_rings(
                ready.compiled, ready.image, ready.shape, self.ears, self.profile.classes
            )
        self._has_looked_for_rings = True
        return self._rings

    def rates(self, gpu: Gpu, arch: Arch, occupancy: Occupancy, shared_bytes: int) -> "CacheRates | None":
        """Hit rates; None where no load looks into the L1, so that the grid's distinct bytes say as much.

        shared_bytes: of one CTA.
        """
        if not self._routes:
            self._routes = routes_of(self.ready.compiled.cfg.kernel)
        if not self._looks_into_l1() or not occupancy.ctas_per_sm:
            return None
        from analyzer.demand.caches import cache_figures, grid_reuse, simulate_caches
        from analyzer.execution.streams import co_resident_ctas

        n_ctas = self.profile.launch.grid.count if self.profile.launch.grid else 1
        sms, slots = gpu.sm_count, occupancy.ctas_per_sm
        resident = len(co_resident_ctas(n_ctas, n_sms=sms, ctas_per_sm=slots))
        stream = self._recorded(n_ctas, sms, slots)
        own_trip = gpu.file.memory.l2_latency_cycles
        figures = cache_figures(
            arch,
            l2_bytes=gpu.file.l2.size_bytes.value,
            shared_bytes_in_use=resident * allocated_shared_bytes(arch.limits, shared_bytes),
            ctas_per_sm=resident,
            n_recorded=len(stream.ctas),
            warps_per_cta=stream.warps_per_cta,
            trip_cycles=own_trip.value if own_trip is not None else None,
        )
        found = self.dram_traffic(gpu, arch, occupancy)
        if found.at_once is not None:
            figures = figures.beside_others(stream, found.at_once, arch.memory.l2_kept_share.value)
        key = (figures, found.read)
        if key not in self._rates:
            reuse = grid_reuse(self.profile, figures.l2, found.read)
            self._rates[key] = simulate_caches(stream, self._routes, figures, reuse)
        return self._rates[key]

    def dram_traffic(self, gpu: Gpu, arch: Arch, occupancy: Occupancy) -> "DramTraffic":
        """Sectors that the grid moves from and to DRAM."""
        kept = gpu.file.l2.size_bytes.value * arch.memory.l2_kept_share.value
        key = (gpu.sm_count * max(1, occupancy.ctas_per_sm), kept)
        if key not in self._from_dram:
            from analyzer.pipeline.windows import Windows

            self._from_dram[key] = Windows(self.ready, self.profile, self.log).dram_traffic(*key)
        return self._from_dram[key]

    def _recorded(self, n_ctas: int, sms: int, slots: int) -> "AddressStream":
        """Of the first wave; of one in the middle, where that reads nothing: first planes are often idle."""
        if self._stream is None:
            wave = sms * slots
            self._stream = self._record(n_ctas, sms, slots, 0)
            if not len(self._stream) and n_ctas >= 2 * wave:
                self._stream = self._record(n_ctas, sms, slots, n_ctas // wave // 2 * wave)
        return self._stream

    def _record(self, n_ctas: int, sms: int, slots: int, first: int) -> "AddressStream":
        from analyzer.execution.guesses import Guesser
        from analyzer.execution.stand_ins import tables_of
        from analyzer.execution.streams import StreamLimits, co_resident_ctas, record_stream

        limits = StreamLimits(
            sectors=max(_LEAST_SECTORS, StreamLimits().sectors // self.n_kernels),
            actions=max(_LEAST_ACTIONS, StreamLimits().actions // self.n_kernels),
        )
        per_cta = sum(access.sectors or 0 for access in self.profile.accesses) / max(1, n_ctas)
        ctas = co_resident_ctas(
            n_ctas,
            n_sms=sms,
            ctas_per_sm=slots,
            sectors_per_cta=per_cta,
            limits=limits,
            sm=min(n_ctas, sms) // 2,  # the first SM has the borders, and the shortest rows of a mask
            first=first,
        )
        return record_stream(
            self.ready.compiled,
            self.ready.image,
            self.ready.shape,
            ctas,
            guesser=Guesser(self.ready.compiled, self.trips, self.taken),
            limits=limits,
            tables=tables_of(self.ready.image, ((one.row, one.base) for one in self.profile.accesses)),
        )

    def _looks_into_l1(self) -> bool:
        """Whether some executed load of global or local memory may hit there."""
        cfg = self.ready.compiled.cfg
        ids = cfg.kernel.opcode_ids[: len(cfg.block_of)]
        loads = cfg.kernel.vocabulary.mask(
            lambda opcode: opcode.kind in MEMORY_KINDS and opcode.space in _GLOBAL
        )[ids]
        executed = self.profile.block_warps[np.asarray(cfg.block_of)] > 0
        rows = np.flatnonzero(loads & executed).tolist()
        return any(self._routes[row] is Route.CACHED for row in rows)
