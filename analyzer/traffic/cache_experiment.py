"""Further executions of a launch that models ask for: addresses for caches, mbarriers for pipelines."""

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from analyzer.demand.hit_rates import KernelHitRates
from analyzer.demand.l1_policies import L1Policy, find_l1_policies
from analyzer.execution.machine.access_log import AccessLog
from analyzer.execution.machine.prepared_launch import PreparedLaunch
from analyzer.execution.mbarriers.mbarrier_recorder import MbarrierRecorder
from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.occupancy import Occupancy, compute_allocated_shared_bytes
from analyzer.hardware.schema import Arch
from analyzer.ir.opcode import MEMORY_KINDS, AddressSpace, Opcode

if TYPE_CHECKING:  # most kernels need none of it, and start-up stays light
    from analyzer.demand.cache_simulation import CacheHierarchy
    from analyzer.execution.profile.mbarrier_pipelines import MbarrierPipelines
    from analyzer.execution.traces.address_streams import AddressStream
    from analyzer.traffic.dram_windows import DramTraffic

_MIN_RECORDED_SECTORS = 4_000
_MIN_RECORDED_ACTIONS = 400
_WORKING_SHARE = 0.5  # of the instructions of the CTA that has most: one with as many has work
_OFF_CHIP_SPACES = frozenset({AddressSpace.GLOBAL, AddressSpace.GENERIC, AddressSpace.LOCAL})


class CacheExperiment(Struct, eq=False):
    """Hit rates, DRAM traffic and mbarrier pipelines of one executed launch, each computed once and cached.

    Addresses are recorded once, of the CTAs that are co-resident on an SM of the first GPU. Other GPUs hold
    other CTAs, which hardly ever access memory in another way.
    """

    prepared: PreparedLaunch
    profile: ExecutionProfile
    memory_log: AccessLog | None = None
    mbarrier_recorder: MbarrierRecorder | None = None
    n_kernels: int = 1  # kernels that share the limits of recording
    trip_rules: tuple[TripCountRule, ...] = ()
    branch_rules: tuple[BranchTakenRule, ...] = ()
    _address_stream: "AddressStream | None" = None
    _rates_by_hierarchy: "dict[tuple[CacheHierarchy, float | None], KernelHitRates]" = field(
        default_factory=dict
    )
    _dram_traffic: "dict[tuple[int, float], DramTraffic]" = field(default_factory=dict)
    _l1_policies: tuple[L1Policy, ...] = ()
    _mbarrier_pipelines: "MbarrierPipelines | None" = None
    _has_searched_pipelines: bool = False

    def find_mbarrier_pipelines(self) -> "MbarrierPipelines | None":
        """Find mbarrier pipelines; None without any, or if their addresses are not known."""
        from analyzer.execution.lowering.slicing import has_mbarrier_waits
        from analyzer.execution.mbarriers.pipeline_search import find_mbarrier_pipelines

        cfg = self.prepared.compiled.cfg
        if not self._has_searched_pipelines and has_mbarrier_waits(cfg):
            prepared = self.prepared
            self._mbarrier_pipelines = find_mbarrier_pipelines(
                prepared.compiled,
                prepared.image,
                prepared.shape,
                self.mbarrier_recorder,
                self.profile.warp_classes,
            )
        self._has_searched_pipelines = True
        return self._mbarrier_pipelines

    def simulate_hit_rates(
        self, gpu: Gpu, arch: Arch, occupancy: Occupancy, shared_bytes: int
    ) -> KernelHitRates | None:
        """Simulate hit rates; None if no load looks into the L1: then the grid's distinct bytes tell as much.

        shared_bytes: of one CTA.
        """
        if not self._l1_policies:
            self._l1_policies = find_l1_policies(self.prepared.compiled.cfg.kernel)
        if not self._has_l1_cached_loads() or not occupancy.ctas_per_sm:
            return None
        from analyzer.demand.cache_simulation import (
            build_cache_hierarchy,
            compute_grid_reuse,
            simulate_caches,
        )
        from analyzer.execution.traces.address_streams import find_co_resident_ctas

        n_ctas = self.profile.launch.grid.count if self.profile.launch.grid else 1
        n_sms, slots = gpu.sm_count, occupancy.ctas_per_sm
        resident = len(find_co_resident_ctas(n_ctas, n_sms=n_sms, ctas_per_sm=slots))
        stream = self._find_address_stream(n_ctas, n_sms, slots)
        l2_latency = gpu.file.memory.l2_latency_cycles
        hierarchy = build_cache_hierarchy(
            arch,
            l2_bytes=gpu.file.l2.size_bytes.value,
            shared_bytes_in_use=resident * compute_allocated_shared_bytes(arch.limits, shared_bytes),
            ctas_per_sm=resident,
            n_recorded=len(stream.ctas),
            warps_per_cta=stream.warps_per_cta,
            l2_latency_cycles=l2_latency.value if l2_latency is not None else None,
        )
        found = self.count_dram_traffic(gpu, arch, occupancy)
        if found.concurrent_sectors is not None:
            hierarchy = hierarchy.with_l2_contention(
                stream, found.concurrent_sectors, arch.memory.l2_kept_share.value
            )
        if found.concurrent_read_sectors is not None:
            hierarchy = hierarchy.with_rereading_ctas(
                stream, found.concurrent_read_sectors, arch.memory.l2_kept_share.value
            )
        key = (hierarchy, found.read_sectors)
        if key not in self._rates_by_hierarchy:
            n_working = n_ctas * (1.0 - self._find_idle_cta_share(stream.warps_per_cta))
            reuse = compute_grid_reuse(
                self.profile,
                hierarchy.l2,
                found.read_sectors,
                n_ctas=n_working,
                n_waves=max(1.0, n_working / (n_sms * slots)),
                cta_read_sectors=found.cta_read_sectors,
            )
            self._rates_by_hierarchy[key] = simulate_caches(stream, self._l1_policies, hierarchy, reuse)
        return self._rates_by_hierarchy[key]

    def _find_idle_cta_share(self, warps_per_cta: int) -> float:
        """Return the share of the grid's CTAs that find no work."""
        from analyzer.execution.profile.idle_warps import split_by_work

        cfg = self.prepared.compiled.cfg
        return split_by_work(cfg, self.profile.warp_classes, warps_per_cta).idle_cta_share

    def count_dram_traffic(self, gpu: Gpu, arch: Arch, occupancy: Occupancy) -> "DramTraffic":
        """Count the sectors that the grid reads from DRAM and writes to it."""
        kept = gpu.file.l2.size_bytes.value * arch.memory.l2_kept_share.value
        key = (occupancy.count_wave_ctas(gpu.sm_count), kept)
        if key not in self._dram_traffic:
            from analyzer.traffic.dram_windows import CtaWindows

            self._dram_traffic[key] = CtaWindows(
                self.prepared, self.profile, self.memory_log
            ).count_dram_traffic(*key)
        return self._dram_traffic[key]

    def _find_address_stream(self, n_ctas: int, n_sms: int, slots: int) -> "AddressStream":
        """Record the first wave; if it reads nothing, CTAs that work, or a wave in the middle of the grid.

        Of the first wave, the CTAs of the SM in the middle: the first SM has border tiles, and the shortest
        rows of causal masks. They may be ones that leave at once, and first planes are often idle.
        """
        if self._address_stream is None:
            wave, middle = n_sms * slots, min(n_ctas, n_sms) // 2
            tried = [(0, middle)]
            work = self.profile.cta_work
            if work is not None:
                working = np.flatnonzero(work >= _WORKING_SHARE * work.max())
                turn, sm = divmod(int(working[len(working) // 2]), n_sms)
                tried.append((turn // slots * wave, sm))
            if n_ctas >= 2 * wave:
                tried.append((n_ctas // wave // 2 * wave, middle))
            for first, sm in tried:
                self._address_stream = self._record_stream(n_ctas, n_sms, slots, first, sm)
                if not self._address_stream.is_store.all():
                    break
        assert self._address_stream is not None
        return self._address_stream

    def _record_stream(self, n_ctas: int, n_sms: int, slots: int, first: int, sm: int) -> "AddressStream":
        from analyzer.execution.acceleration.branch_decisions import BranchDecider
        from analyzer.execution.machine.random_data import find_target_buffers
        from analyzer.execution.traces.address_streams import (
            StreamLimits,
            find_co_resident_ctas,
            record_address_stream,
        )

        limits = StreamLimits(
            max_sectors=max(_MIN_RECORDED_SECTORS, StreamLimits().max_sectors // self.n_kernels),
            max_actions=max(_MIN_RECORDED_ACTIONS, StreamLimits().max_actions // self.n_kernels),
        )
        mean_sectors_per_cta = sum(access.sectors or 0 for access in self.profile.accesses) / max(1, n_ctas)
        ctas = find_co_resident_ctas(
            n_ctas,
            n_sms=n_sms,
            ctas_per_sm=slots,
            sectors_per_cta=mean_sectors_per_cta,
            limits=limits,
            sm=sm,
            first=first,
        )
        return record_address_stream(
            self.prepared.compiled,
            self.prepared.image,
            self.prepared.shape,
            ctas,
            branch_decider=BranchDecider(self.prepared.compiled, self.trip_rules, self.branch_rules),
            limits=limits,
            tables=find_target_buffers(
                self.prepared.image, ((one.row, one.base_address) for one in self.profile.accesses)
            ),
        )

    def _has_l1_cached_loads(self) -> bool:
        """Return whether some executed load of global or local memory may hit the L1."""
        cfg = self.prepared.compiled.cfg
        ids = cfg.kernel.opcode_ids[: len(cfg.block_of)]
        loads = cfg.kernel.form_table.make_opcode_mask(_accesses_off_chip_memory)[ids]
        executed = self.profile.block_executions[np.asarray(cfg.block_of)] > 0
        rows = np.flatnonzero(loads & executed).tolist()
        return any(self._l1_policies[row] is L1Policy.READ_ALLOCATE for row in rows)


def _accesses_off_chip_memory(opcode: Opcode) -> bool:
    return opcode.kind in MEMORY_KINDS and opcode.space in _OFF_CHIP_SPACES
