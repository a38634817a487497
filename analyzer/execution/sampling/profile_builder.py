"""Builder of the profile of an executed launch: counts, accesses, and the provenance of each."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from analyzer.execution.binding.constant_image import ALLOCATION_SPACING_BYTES
from analyzer.execution.footprint.footprint import count_union_bytes, count_union_sectors
from analyzer.execution.footprint.grid_traffic import RequestedBytes, build_grid_traffic
from analyzer.execution.footprint.request_cost import SECTOR_BYTES
from analyzer.execution.lowering.segments import LoweredAccess
from analyzer.execution.machine.access_totals import READ_KINDS, WRITE_KINDS, AccessTotals
from analyzer.execution.machine.doubts import DoubtKind
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.execution.profile.cta_work import build_cta_work
from analyzer.execution.profile.execution_profile import (
    BlockRange,
    ExecutionProfile,
    GlobalTraffic,
    MemoryAccess,
    UnknownBranch,
    WarpClass,
)
from analyzer.execution.profile.missing_inputs import MissingInput
from analyzer.execution.profile.provenance import Provenance, find_worst_provenance
from analyzer.execution.sampling.cta_samples import CtaSample
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.execution.sampling.gather_estimate import (
    GatherEstimate,
    GatherTraffic,
    InstructionKey,
    estimate_distinct_sectors,
)
from analyzer.execution.sampling.launch_sums import LaunchSums
from analyzer.execution.sampling.missing_input_search import MissingInputSearch
from analyzer.flow.missing_code import format_missing_code
from analyzer.ir.arrays import CountArray, FloatArray
from analyzer.ir.launch import Launch
from analyzer.ir.opcode import GLOBAL_SPACES, SHARED_SPACES, AddressSpace, OpKind

_EXACT_LIMIT = 2.0**53  # what a sum in doubles counts exactly
_WORD_BYTES = 4
_LARGEST_EXACT_FLOAT = 2.0**53


class ProfileBuilder(Struct, frozen=True, eq=False, dict=True):
    """Builds the profile of a launch from its sums."""

    task: ExecutionTask
    launch: Launch
    sample: CtaSample
    sums: LaunchSums
    gather_estimates: Mapping[InstructionKey, GatherEstimate] = {}  # of addresses with loaded words
    # Distinct share of the bytes of rows that unknown words name, from adjacent CTAs: scattered ones do not
    # show which rows neighbors share.
    distinct_row_shares: Mapping[InstructionKey, float] = {}

    def compute_distinct_row_shares(self) -> Mapping[InstructionKey, float]:
        """Return the distinct share of the bytes of rows that unknown words name, where it is known."""
        found: dict[InstructionKey, float] = {}
        for sizes in self._group_by_instruction():
            n_bytes, n_distinct = sum(map(_count_requested_bytes, sizes)), self._count_gathered_bytes(sizes)
            if n_bytes and n_distinct is not None:
                found[_make_instruction_key(sizes)] = n_distinct / n_bytes
        return found

    def build(self) -> ExecutionProfile:
        """Build the profile."""
        blocks = self._find_block_provenance()
        entries = list(self.task.kernel.entry_segments)
        accesses = tuple(self._build_access(sizes, blocks) for sizes in self._group_by_instruction())
        return ExecutionProfile(
            launch=self.launch,
            n_warps=self.task.shape.grid.count * self.task.shape.warps_per_cta,
            n_sampled_ctas=len(self.sample.cta_numbers),
            warp_classes=_merge_warp_classes(self.sums.warp_classes),
            block_executions=_round_to_int(self.sums.segment_executions)[entries],
            block_active_lanes=_round_to_int(self.sums.segment_active_lanes)[entries],
            block_parts=self._build_block_parts(),
            cta_boxes=self.sample.boxes if self.sample.has_affine_accesses else (),
            cta_work=self._build_cta_work(),
            block_provenance=blocks,
            loop_entries=self.sums.loop_entries,
            accesses=accesses,
            traffic=self._build_traffic(),
            unknown_branches=self._build_unknown_branches(),
            provenance=find_worst_provenance(blocks),
            is_sample=not self.sample.is_proven,
            missing_scalars=self._missing_inputs.find_scalars(self.sums.segment_executions),
            assumptions=self._collect_assumptions(),
        )

    @cached_property
    def _missing_inputs(self) -> MissingInputSearch:
        return MissingInputSearch(self.task.kernel, self.task.image, self.sums.access_totals)

    def _find_missing_inputs(self, sizes: Sequence[AccessTotals]) -> tuple[MissingInput, ...]:
        """Return the inputs that nobody gave and that an instruction's addresses or guards depend on."""
        origins = frozenset[int]().union(*(totals.origins for totals in sizes))
        found = (self._missing_inputs.find_by_origin(origin) for origin in sorted(origins))
        return tuple(dict.fromkeys(missing for missing in found if missing is not None))

    def _sort_totals(self) -> list[AccessTotals]:
        return [
            self.sums.access_totals[key]
            for key in sorted(self.sums.access_totals, key=lambda k: (k[0], k[1].value, k[2]))
        ]

    def _group_by_instruction(self) -> list[list[AccessTotals]]:
        """Group totals by instruction and address space: there are several for copies of several sizes."""
        found: dict[InstructionKey, list[AccessTotals]] = {}
        for totals in self._sort_totals():
            found.setdefault((totals.access.row, totals.access.space), []).append(totals)
        return list(found.values())

    def _build_block_parts(self) -> tuple[BlockRange, ...]:
        """Build the parts of blocks whose segments run unequally often, since lanes reconverge inside."""
        segments, warps, lanes = (
            self.task.kernel.segments,
            _round_to_int(self.sums.segment_executions),
            _round_to_int(self.sums.segment_active_lanes),
        )
        first = self.task.kernel.entry_segments
        cut = {s.block for s in segments if warps[s.index] != warps[first[s.block]]}
        return tuple(
            BlockRange(s.block, s.start, s.stop, int(warps[s.index]), int(lanes[s.index]))
            for s in segments
            if s.block in cut and s.stop > s.start
        )

    def _build_cta_work(self) -> FloatArray | None:
        if self.sums.stop_reason or not self.sample.is_proven:
            return None
        return build_cta_work(self.task.shape.grid, self.sums.cta_work, self.sample.boxes)

    def _find_block_provenance(self) -> tuple[Provenance, ...]:
        if self.sums.stop_reason:
            return (Provenance.UNKNOWN,) * len(self.task.kernel.cfg.blocks)
        base = Provenance.EXACT if self._is_all_counted else Provenance.ASSUMED
        return tuple(
            Provenance.ASSUMED if block.index in self.sums.speculative_blocks else base
            for block in self.task.kernel.cfg.blocks
        )

    @property
    def _is_all_counted(self) -> bool:
        """True if all that runs is in the code at hand, and the executed CTAs are proven to stand for all."""
        cfg = self.task.kernel.cfg
        is_missing = cfg.missing_code or cfg.kernel.unparsed_rows or self._executed_external_calls
        return self.sample.is_proven and not is_missing

    @cached_property
    def _executed_external_calls(self) -> tuple[int, ...]:
        """Rows of executed calls of functions that the input does not have."""
        cfg, first = self.task.kernel.cfg, self.task.kernel.entry_segments
        runs = self.sums.segment_executions
        return tuple(row for row in sorted(cfg.external_call_rows) if runs[first[cfg.block_of[row]]] > 0)

    def _build_access(self, sizes: Sequence[AccessTotals], blocks: tuple[Provenance, ...]) -> MemoryAccess:
        """Build the access of one instruction in one address space.

        sizes: its totals, by bytes per lane.
        blocks: provenance of the counts of each block.
        """
        access = sizes[0].access
        in_global = access.space in GLOBAL_SPACES
        has_sectors = (in_global or access.space is AddressSpace.LOCAL) and all(
            map(_has_known_sectors, sizes)
        )
        has_place = in_global and all(self._has_known_place(totals) for totals in sizes)
        found = MemoryAccess(
            row=access.row,
            space=access.space,
            is_store=access.kind in (OpKind.STORE, OpKind.REDUCTION),
            requests=round(sum(totals.requests for totals in sizes)),
            lanes=round(sum(totals.lanes for totals in sizes)),
            bytes=sum(map(_count_requested_bytes, sizes)),
            sectors=round(sum(totals.sectors for totals in sizes)) if has_sectors else None,
            wavefronts=round(sum(totals.wavefronts for totals in sizes))
            if all(map(_has_known_addresses, sizes))
            else None,
            lines=sum(totals.lines for totals in sizes) if _has_lines(sizes) else None,
            unique_bytes=count_union_bytes([totals.footprint for totals in sizes]) if has_place else None,
            provenance=find_worst_provenance(self._find_provenance(totals, blocks) for totals in sizes),
            is_indirect=any(totals.trust is AddressConfidence.INDEXED_ROW for totals in sizes),
            gathered_bytes=self._count_gathered_bytes(sizes),
            missing_inputs=self._find_missing_inputs(sizes),
            address_provenance=find_worst_provenance(map(self._find_address_provenance, sizes)),
            unique_sectors=count_union_sectors([totals.footprint for totals in sizes])
            if has_place and _needs_sectors(access)
            else None,
            base_address=next(
                (totals.base_address for totals in sizes if totals.base_address is not None), None
            ),
        )
        estimate = self.gather_estimates.get((access.row, access.space))
        return found if estimate is None else self._apply_gather_estimate(found, estimate)

    def _find_address_provenance(self, totals: AccessTotals) -> Provenance:
        """Return what the addresses rest on, whether or not it is known how often the instruction runs."""
        if not _has_known_addresses(totals) and totals.access.kind is not OpKind.BULK_COPY:
            return Provenance.UNKNOWN
        is_exact = totals.trust is AddressConfidence.EXACT and totals.access.address is not None
        return Provenance.EXACT if is_exact and self._has_grid_footprints else Provenance.ASSUMED

    def _find_provenance(self, totals: AccessTotals, blocks: tuple[Provenance, ...]) -> Provenance:
        own = blocks[self.task.kernel.cfg.block_of[totals.access.row]]
        if totals.is_speculative or totals.trust is not AddressConfidence.EXACT:
            own = find_worst_provenance((own, Provenance.ASSUMED))
        if not _has_known_addresses(totals) and totals.access.kind is not OpKind.BULK_COPY:
            return Provenance.UNKNOWN
        if not totals.is_exhaustive or not self.sample.has_affine_accesses:
            return find_worst_provenance((own, Provenance.ASSUMED))
        return own

    def _has_known_place(self, totals: AccessTotals) -> bool:
        return totals.has_usable_footprint and self._has_known_patterns(totals)

    def _has_known_patterns(self, totals: AccessTotals) -> bool:
        return _has_known_addresses(totals) and self._has_grid_footprints and totals.is_exhaustive

    def _count_gathered_bytes(self, sizes: Sequence[AccessTotals]) -> int | None:
        """Count the distinct bytes of gathered rows, at most; None if unknown.

        Each distinct word is taken to name a row of its own, of which all bytes are read that are of any row.
        """
        index_loads = frozenset[int]().union(*(totals.index_loads for totals in sizes))
        if index_loads and (share := self.distinct_row_shares.get(_make_instruction_key(sizes))) is not None:
            return round(share * sum(map(_count_requested_bytes, sizes)))
        if not index_loads or not all(map(self._has_known_patterns, sizes)):
            return None
        words = [self._count_distinct_words(row) for row in sorted(index_loads)]
        row_bytes = count_union_bytes([totals.footprint for totals in sizes])
        known = [number for number in words if number is not None]
        if row_bytes is None or len(known) < len(words):
            return None
        return min(sum(map(_count_requested_bytes, sizes)), round(row_bytes * sum(known)))

    def _count_distinct_words(self, row: int) -> float | None:
        """Count the distinct words that an instruction loads over the grid; a wide load counts as one."""
        loads = [totals for key, totals in self.sums.access_totals.items() if key[0] == row]
        if not loads or not all(map(self._has_known_place, loads)):
            return None
        found = count_union_bytes([totals.footprint for totals in loads])
        return None if found is None else found / loads[0].access.lane_bytes

    @property
    def _has_grid_footprints(self) -> bool:
        """True if footprints cover the accesses of the whole grid."""
        return self.sample.has_affine_accesses and not self.sums.stop_reason

    def _build_traffic(self) -> GlobalTraffic:
        """Build the global memory traffic; unique bytes are unknown if any footprint or table is."""

        def sum_requests(kinds: frozenset[OpKind]) -> RequestedBytes:
            chosen = [
                totals
                for totals in self._sort_totals()
                if totals.access.space in GLOBAL_SPACES and totals.access.kind in kinds
            ]
            n_bytes = sum(map(_count_requested_bytes, chosen))
            placed = [totals for totals in chosen if totals.has_complete_footprint]
            tables = self._find_table_sectors(
                [totals for totals in chosen if not totals.has_complete_footprint]
            )
            if not self._has_grid_footprints or tables is None:
                return RequestedBytes(n_bytes, None)
            return RequestedBytes(n_bytes, [totals.footprint for totals in placed], tables)

        return build_grid_traffic(sum_requests(READ_KINDS), sum_requests(WRITE_KINDS))

    def _apply_gather_estimate(self, found: MemoryAccess, estimate: GatherEstimate) -> MemoryAccess:
        """Fill unknown figures of an access with estimates from words that were given, or random ones."""
        in_global = found.space in GLOBAL_SPACES
        sectors, wavefronts = found.sectors, found.wavefronts
        if sectors is None and (in_global or found.space is AddressSpace.LOCAL):
            sectors = round(found.requests * estimate.sectors_per_request)
        if wavefronts is None:
            wavefronts = round(found.requests * estimate.wavefronts_per_request)
        found = replace(
            found,
            sectors=sectors,
            wavefronts=wavefronts,
            provenance=found.provenance if estimate.has_known_words else Provenance.ASSUMED,
            address_provenance=found.address_provenance if estimate.has_known_words else Provenance.UNKNOWN,
        )
        gathers = (
            self._gathers_by_allocation.get(_align_to_allocation(found.base_address)) if in_global else None
        )
        if gathers is None:
            return found
        table = gathers.find_table_bytes(estimate)
        if table is None:
            return replace(found, is_indirect=True, unique_bytes=None)
        n_sectors = max(1.0, gathers.n_sectors)
        return replace(
            found,
            is_indirect=True,
            unique_bytes=round(estimate_distinct_sectors(table, sectors or 0) * SECTOR_BYTES),
            table_bytes=table,
            first_touch_share=estimate_distinct_sectors(table, n_sectors) / n_sectors,
        )

    def _find_table_sectors(self, looked_up: Sequence[AccessTotals]) -> Mapping[int, float] | None:
        """Return the sectors that gathers access in each table, by its allocation; None if any is unknown."""
        found: dict[int, float] = {}
        for totals in looked_up:
            estimate = self.gather_estimates.get((totals.access.row, totals.access.space))
            gathers = self._gathers_by_allocation.get(_find_allocation(totals))
            table = None if estimate is None or gathers is None else gathers.find_table_bytes(estimate)
            if table is None or gathers is None:
                return None
            touched = estimate_distinct_sectors(table, gathers.n_sectors)
            found[_find_allocation(totals)] = max(found.get(_find_allocation(totals), 0.0), touched)
        return found

    @cached_property
    def _gathers_by_allocation(self) -> Mapping[int, GatherTraffic]:
        """Traffic of gathers and scatters, by the address of the allocation that they access."""
        found: dict[int, GatherTraffic] = {}
        for totals in self._sort_totals():
            estimate = self.gather_estimates.get((totals.access.row, totals.access.space))
            if estimate is None or totals.access.space not in GLOBAL_SPACES:
                continue
            own = found.setdefault(_find_allocation(totals), GatherTraffic())
            own.n_sectors += totals.sectors or totals.requests * estimate.sectors_per_request
            own.read_bytes += _count_requested_bytes(totals) * (totals.access.kind in READ_KINDS)
            own.written_bytes += _count_requested_bytes(totals) * (totals.access.kind in WRITE_KINDS)
        return found

    def _build_unknown_branches(self) -> tuple[UnknownBranch, ...]:
        """Build the undecided branches, those that most instructions depend on first."""
        lengths = np.array([segment.stop - segment.start for segment in self.task.kernel.segments])
        total = float(self.sums.segment_executions @ lengths) or 1.0
        found = []
        for row, weight in sorted(self.sums.speculative_instructions.items(), key=lambda item: -item[1]):
            text, origin_row = self.sums.branch_origins[row]
            header = self._find_exited_header(row)
            missing = self._find_deciding_input(text, origin_row, None if header is None else row)
            found.append(
                UnknownBranch(
                    row=row,
                    origin=text or self._format_origin(origin_row),
                    origin_row=origin_row,
                    rule=self.task.options.branch_decider.reasons.get(row, self._find_default_rule(row)),
                    hint=self._format_hint(row, header, origin_row, missing),
                    instruction_share=min(1.0, weight / total),
                    missing_input=missing or MissingInput(option=self._format_branch_option(row, header)),
                    decides_trips=header is not None,
                    is_open=self.task.options.branch_decider.is_open(row),
                )
            )
        return tuple(found)

    def _find_default_rule(self, row: int) -> str:
        return "one order of the warps is taken" if row in self.sums.doubts else "all ways taken"

    def _format_origin(self, row: int | None) -> str:
        """Format what a value is from; of one in doubt, why it is."""
        if row is None:
            return ""
        doubt = self.sums.doubts.get(row)
        if doubt is None:
            return self._format_instruction(row)
        place, other = self._format_place(row), self._format_place(doubt.row)
        match doubt.kind:
            case DoubtKind.APPROXIMATE:
                return f"the last bits of {place}, which is an approximation"
            case DoubtKind.UNORDERED:
                return f"the order of warps: no barrier between {place} and {other}"
            case DoubtKind.DISPUTED:
                return f"the order of threads: several values are stored to what {place} loads, as by {other}"

    def _format_place(self, row: int) -> str:
        """Format an instruction, with its source line where there is one."""
        line = self.task.kernel.cfg.kernel.find_source_line(row)
        return self._format_instruction(row) + (f" ({line})" if line else "")

    def _format_instruction(self, row: int) -> str:
        kernel = self.task.kernel.cfg.kernel
        return f"{int(kernel.addresses[row]):#06x} {kernel.decode_form(row).text}"

    def _find_exited_header(self, row: int) -> int | None:
        """Return the address of the header of the loop that a branch leaves; None if it leaves none."""
        cfg, loop = self.task.kernel.cfg, self.task.options.branch_decider.find_loop_of_branch(row)
        return None if loop is None else int(cfg.kernel.addresses[cfg.blocks[loop.header].start])

    def _find_deciding_input(
        self, text: str, origin_row: int | None, exit_row: int | None
    ) -> MissingInput | None:
        """Return the argument that would decide a branch.

        text, origin_row: see `LaunchSums.branch_origins`; exit_row: its own where it leaves a loop.
        """
        if origin_row is not None:
            return self._missing_inputs.find_by_origin(origin_row, exit_row=exit_row)
        image = self.task.image
        found = zip(image.unknown_reasons, image.missing_inputs, strict=True)
        return next((missing for reason, missing in found if reason == text), None)

    def _format_branch_option(self, row: int, header: int | None) -> str:
        """Return the option that settles a branch without its cause; header: of the loop that it leaves."""
        if header is not None:
            return f"--trip {header:#x}=N"
        return f"--taken {int(self.task.kernel.cfg.kernel.addresses[row]):#x}=SHARE"

    def _format_hint(
        self, row: int, header: int | None, origin_row: int | None, missing: MissingInput | None
    ) -> str:
        kernel, option = self.task.kernel.cfg.kernel, self._format_branch_option(row, header)
        if missing is not None:
            return f"{missing}, or {option}"
        if origin_row is not None and kernel.find_opcode(origin_row).space in GLOBAL_SPACES:
            return f"--arg WHICH=@data.npy for what it loads, or {option}"
        return option

    def _collect_assumptions(self) -> tuple[str, ...]:
        """Format the assumptions behind the profile, for the report."""
        notes = list(self.task.image.assumptions)
        cfg = self.task.kernel.cfg
        notes += format_missing_code(cfg, self._executed_external_calls)
        if unset := self.task.kernel.unset_rows:
            addresses = [f"{int(cfg.kernel.addresses[row]):#06x}" for row in unset]
            notes.append(
                f"what {len(unset)} instructions write is not followed and taken as unknown, the first at "
                f"{addresses[0]}"
            )
        if self.sums.stop_reason:
            notes.append(
                f"execution came to no end: {self.sums.stop_reason}; counts are of what ran until then"
            )
        notes += self.sample.notes
        if self.sums.segment_active_lanes.max(initial=0.0) > _LARGEST_EXACT_FLOAT:
            notes.append(f"counts above {_LARGEST_EXACT_FLOAT:,.0f} are rounded to 15 digits")
        if self.sums.atomic_counters:
            places = ", ".join(
                f"{int(cfg.kernel.addresses[row]):#06x}" for row in sorted(self.sums.atomic_counters)
            )
            notes.append(
                f"the atomic at {places} counts: what the one of many does that gets a certain number, "
                "as the last CTA of a grid, is not counted"
            )
        possible = [t.access.row for t in self._sort_totals() if t.trust is AddressConfidence.POSSIBLE]
        if possible:
            places = ", ".join(f"{int(cfg.kernel.addresses[row]):#06x}" for row in dict.fromkeys(possible))
            causes = "; ".join(map(self._format_origin, sorted(self.sums.doubts)))
            notes.append(f"the address at {places} is one of several possible ones: it depends on {causes}")
        estimated = [
            t for t in self._sort_totals() if AddressConfidence.NONE < t.trust < AddressConfidence.POSSIBLE
        ]
        if estimated:
            addresses = [
                f"{int(self.task.kernel.cfg.kernel.addresses[t.access.row]):#06x}" for t in estimated
            ]
            names_rows = any(t.trust is AddressConfidence.INDEXED_ROW for t in estimated)
            notes.append(_format_zero_word_note(list(dict.fromkeys(addresses)), names_rows=names_rows))
        scattered = [
            t
            for t in self._sort_totals()
            if t.trust is AddressConfidence.NONE and t.access.row in self._estimated_rows
        ]
        if scattered:
            addresses = [
                f"{int(self.task.kernel.cfg.kernel.addresses[t.access.row]):#06x}" for t in scattered
            ]
            notes.append(_format_random_word_note(list(dict.fromkeys(addresses))))
        return tuple(notes)

    @property
    def _estimated_rows(self) -> frozenset[int]:
        return frozenset(row for row, _ in self.gather_estimates)


def _make_instruction_key(sizes: Sequence[AccessTotals]) -> InstructionKey:
    return sizes[0].access.row, sizes[0].access.space


def _find_allocation(totals: AccessTotals) -> int:
    return _align_to_allocation(totals.base_address)


def _align_to_allocation(address: int | None) -> int:
    """Return the address of the allocation that an address belongs to; 0 if unknown."""
    return 0 if address is None else address - address % ALLOCATION_SPACING_BYTES


def _count_requested_bytes(totals: AccessTotals) -> int:
    return round(totals.lanes) * totals.access.lane_bytes


def _has_known_addresses(totals: AccessTotals) -> bool:
    return totals.trust is not AddressConfidence.NONE and totals.access.address is not None


def _needs_sectors(access: LoweredAccess) -> bool:
    """Return whether distinct sectors do not follow from distinct words.

    A lane of a narrow load may leave the rest of a word to other instructions: distinct bytes over the words
    that it touches are then too few.
    """
    return access.bulk is not None or (access.kind is OpKind.LOAD and access.width_bytes < _WORD_BYTES)


def _has_lines(sizes: Sequence[AccessTotals]) -> bool:
    """Return whether the lines that requests touch are known; in shared memory they are counted of writes."""
    access = sizes[0].access
    is_counted = access.space in GLOBAL_SPACES or (
        access.space in SHARED_SPACES and access.kind is OpKind.STORE
    )
    return is_counted and access.bulk is None and all(map(_has_known_addresses, sizes))


def _has_known_sectors(totals: AccessTotals) -> bool:
    """Return whether sectors are known: for a bulk copy its size is enough."""
    return _has_known_addresses(totals) or (totals.access.bulk is not None and totals.access.width_bytes > 0)


def _format_zero_word_note(addresses: Sequence[str], *, names_rows: bool) -> str:
    """Format the assumption that unknown words are zero.

    names_rows: some of these words are loaded and name rows, which may be anywhere.
    """
    more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    rows = "; rows that loaded ones name may lie anywhere" if names_rows else ""
    return (
        f"the address at {addresses[0]}{more} depends on words that are the same for all lanes of a warp and "
        f"that neither an argument nor a buffer gives: taken as 0{rows}"
    )


def _format_random_word_note(addresses: Sequence[str]) -> str:
    more = f" and {len(addresses) - 1} more" if len(addresses) > 1 else ""
    return (
        f"where lanes go at {addresses[0]}{more} depends on words that are not given: anywhere that the "
        "code's masks and widths allow (--arg WHICH=@data.npy gives them, ptr:BYTES a table's size)"
    )


def _round_to_int(sums: NDArray[np.float64]) -> CountArray:
    """Round counts; those of a huge grid stay floats, of which no multiple overflows."""
    rounded: NDArray[np.float64] = np.rint(sums)
    return rounded if rounded.max(initial=0.0) >= _EXACT_LIMIT else rounded.astype(np.int64)


def _merge_warp_classes(classes: list[WarpClass]) -> tuple[WarpClass, ...]:
    """Merge equal classes of several batches; the largest come first."""
    found: dict[tuple[bytes, bytes], WarpClass] = {}
    for one in classes:
        key = (one.block_counts.tobytes(), one.block_active_lanes.tobytes())
        known = found.get(key)
        found[key] = (
            one
            if known is None
            else WarpClass(
                n_warps=known.n_warps + one.n_warps,
                block_counts=known.block_counts,
                block_active_lanes=known.block_active_lanes,
                example_warp=known.example_warp,
                warp_slot_counts=tuple(
                    a + b for a, b in zip(known.warp_slot_counts, one.warp_slot_counts, strict=True)
                ),
                n_beside_busier_warp=known.n_beside_busier_warp + one.n_beside_busier_warp,
            )
        )
    return tuple(sorted(found.values(), key=lambda c: -c.n_warps))
