"""What the simulation of an SM is told, what it keeps of CTAs and warps, and what it gives."""

from msgspec import Struct, field

from analyzer.models.causes import Cause

ROUNDING = 1e-6
_SHORT = int(Cause.SHORT)


class RingFigures(Struct, frozen=True):
    """arrivals: of a CTA's warps that end a phase of a ring of mbarriers; free_waits: see `Ring`.

    each: arrivals of one warp of each script in every phase; empty where warps do not take part in all, so
    that it is not known whose arrival counts for which.
    """

    arrivals: float
    free_waits: int
    each: tuple[float, ...] = ()


class SmFigures(Struct, frozen=True, kw_only=True):
    """What an SM is, in cycles.

    crew: which script each warp of a CTA follows; slots: resident CTAs; path_depth: cycles of work that may
    queue for the load/store path before warps stall; burst: of the L2's and the DRAM's work that is taken at
    once; store_depth: that stores may leave behind them; dram_load: see `MemoryPath.dram_load_cycles`;
    launch_cycles: between two CTAs that come to the SM; read_release: until a memory instruction has read its
    registers; most_visits: of a run; rings: of mbarriers; copies: LDGSTS that a warp
    has in flight at most, 0 where nothing limits them; l2_store_factor: see `L2Cache`, 0 where
    there is none.
    """

    subcores: int
    crew: tuple[int, ...]
    slots: int
    path_depth: float
    burst: float
    store_depth: float
    dram_load: float
    launch_cycles: float
    read_release: float
    most_visits: int
    rings: tuple[RingFigures, ...] = ()
    copies: int = 0
    l2_store_factor: float = 0.0


class Visits(Struct, eq=False):
    """Visits of one run by all warps together: when the low-th and the high-th ended."""

    low: int
    high: int
    warps: int
    done: int = 0
    low_time: float = 0.0
    high_time: float = 0.0

    @property
    def pace(self) -> float:
        """Cycles in which every warp goes through the run once."""
        return self.warps * max(0.0, self.high_time - self.low_time) / max(1, self.high - self.low)


class Played(Struct, eq=False):
    """What a simulation of some CTAs gives.

    cycles: until the last CTA ended, or the last request was served; n_ctas: how many; visits: of the runs
    that were cut short, by script, run and wave of CTAs; waits: of all warps, by script,
    [step * N_WAITS + cause]; ends: when each CTA ended, in that order.
    """

    cycles: float = 0.0
    n_ctas: int = 0
    visits: "dict[tuple[int, int, int], Visits]" = field(default_factory=dict)
    waits: list[list[float]] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)


class Point:
    """Warps that have come to a barrier of the CTA, and those of them that wait there."""

    __slots__ = ("arrived", "parked")

    def __init__(self) -> None:
        self.arrived = 0
        self.parked: list[Warp] = []


class Phases:
    """What one ring of a CTA has come to: arrivals of the phase that goes on and later ones, the latest of
    these, when each earlier phase ended, warps that wait.
    """

    __slots__ = ("arrived", "ended", "free", "latest", "waiting")

    def __init__(self, free: int) -> None:
        self.arrived, self.latest = [0.0], [0.0]
        self.free = free
        self.ended: list[float] = []
        self.waiting: list[Warp] = []

    def add(self, times: float, time: float, wanted: float, number: int | None) -> bool:
        """Arrivals for phase `number` from 0, or for whichever goes on; whether that ends it."""
        place = 0 if number is None else max(0, number - len(self.ended))
        while place >= len(self.arrived):
            self.arrived.append(0.0)
            self.latest.append(0.0)
        self.arrived[place] += times
        self.latest[place] = max(self.latest[place], time)
        if self.arrived[0] < wanted - ROUNDING:
            return False
        self.ended.append(self.latest[0])
        if number is None:
            self.arrived[0] -= wanted
        else:
            del self.arrived[0], self.latest[0]
            self.arrived, self.latest = self.arrived or [0.0], self.latest or [0.0]
        return True

    def ended_at(self, number: int, warp: "Warp") -> float | None:
        """When a phase ended, the first of all being 1; None, and the warp is kept, where that is to come."""
        number -= self.free
        if number <= 0:
            return 0.0
        if number <= len(self.ended):
            return self.ended[number - 1]
        self.waiting.append(warp)
        return None


class Cta:
    """last_visits: of its warps in runs with barriers, by script and run, once they are known; begun: which
    visit there the first of them has come to.
    """

    __slots__ = ("begun", "last_visits", "left", "points", "rings", "wave")

    def __init__(self, warps: int, wave: int, rings: tuple[RingFigures, ...]) -> None:
        self.left, self.wave = warps, wave
        self.begun: dict[tuple[int, int], int] = {}
        self.last_visits: dict[tuple[int, int], int] = {}
        self.points: dict[int, Point] = {}
        self.rings = [Phases(ring.free_waits) for ring in rings]


class Owed(Struct, frozen=True):
    """A scoreboard that a look at an mbarrier raises: until the latency behind the end of a ring's phase."""

    board: int
    ring: int
    number: int
    latency: float


class Warp:
    __slots__ = (
        "acts",
        "asked",
        "asks",
        "at",
        "boards",
        "causes",
        "copied",
        "copying",
        "cta",
        "groups",
        "matrix_done",
        "number",
        "owed",
        "pending",
        "run",
        "script",
        "step",
        "subcore",
        "told",
        "visit",
        "waited",
        "woken",
    )

    def __init__(self, number: int, script: int, cta: Cta, subcore: int) -> None:
        self.number, self.script, self.cta, self.subcore = number, script, cta, subcore
        self.boards = [0.0] * 6
        self.causes = [_SHORT] * 6
        self.pending: list[list[float] | None] = [None] * 6
        self.groups: list[float] = []
        self.owed: list[Owed] = []
        self.copying: list[float] = []
        self.matrix_done = self.copied = 0.0
        self.run = 0
        self.visit = 0
        self.step = 0
        self.waited = self.woken = self.acts = self.asks = False
        self.asked = [0.0] * len(cta.rings)
        self.told = [0.0] * len(cta.rings)
        self.at = 0.0

    def settle(self, boards: tuple[int, ...]) -> bool:
        """Set scoreboards that stand for phases; False, and the warp is kept, where one is still to end."""
        for owed in [owed for owed in self.owed if owed.board in boards]:
            ready = self.cta.rings[owed.ring].ended_at(owed.number, self)
            if ready is None:
                return False
            self.owed.remove(owed)
            if ready + owed.latency > self.boards[owed.board]:
                self.boards[owed.board] = ready + owed.latency
                self.causes[owed.board] = int(Cause.BARRIER)
        return True
