"""Reports of kernels, and facts of inputs, kept under the content of all that they depend on.

Two kinds of entries make an unchanged kernel cost nothing:

    input   digest of a file, of the files read with it, of tools and options of reading  ->  `InputFacts`,
            which name each kernel and the digest of its content
    kernel  digest of the content, launch, GPUs, models, options  ->  `KernelResult`

A file that has not changed is answered by both kinds without being parsed. In a file that has changed, the
kernels that have not are found by their content, and take over their new place (line, number, path).
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import Gpu
from analyzer.ir.launch import Argument, Buffer, Launch
from analyzer.models.registry import is_shipped
from analyzer.pipeline.content_digests import digest_code, digest_parts, encode_json
from analyzer.pipeline.entry_store import EntryStore
from analyzer.pipeline.kernel_analyzer import find_given_launches
from analyzer.pipeline.options import Options
from analyzer.report.analyze_schema import KernelReport
from analyzer.report.input_entries import KernelFacts

_PRUNE_MISSES = 100  # a run that adds less leaves it to others to look at the folder's size
# Which kernels, how many processes, and what only the whole report is held against; launches are digested
# kernel by kernel.
_OPTIONS_WITHOUT_EFFECT = frozenset(
    {
        "kernels",
        "jobs",
        "backend",
        "scheduler",
        "cache_folder",
        "min_coverage",
        "launch",
        "launch_table",
        "shares_steps",
    }
)


class KernelResult(Struct, frozen=True):
    """What the analysis of one kernel gives."""

    reports: tuple[KernelReport, ...]  # one of each launch
    used_trip_rules: tuple[TripCountRule, ...]  # the user's rules that fit some loop of it

    def place(self, path: str, kernel: KernelFacts) -> "KernelResult":
        """Return the result of the same kernel at its place in an input."""
        reports = tuple(
            replace(report, input=path, ordinal=kernel.ordinal, line=kernel.line) for report in self.reports
        )
        return KernelResult(reports, self.used_trip_rules)


class KernelCache:
    """Entries for one set of options; misses and damage are counted."""

    def __init__(self, options: Options) -> None:
        """Prepare the folder of the options. Raises UsageError where it cannot be made."""
        self.store = EntryStore(options.cache_folder, digest_code)
        self.store.prepare()
        self.n_misses = 0
        # A listing quotes source files and other levels of the code, wherever they are found; another
        # distribution's model may change and keep its version.
        self.keeps_kernels = self.store.is_enabled and not (
            options.listing or options.levels or not all(map(is_shipped, options.models))
        )
        self._options = options
        self._option_key = encode_json(
            [
                [name, getattr(options, name)]
                for name in options.__struct_fields__
                if name not in _OPTIONS_WITHOUT_EFFECT
            ]
        )
        self._encoded: dict[int, tuple[Gpu | Launch, bytes]] = {}

    def make_kernel_key(self, kernel: KernelFacts, gpus: Sequence[Gpu], n_kernels: int) -> str:
        """Return the key of a kernel's result; "" where it is not kept.

        n_kernels: that share the limits of work.
        """
        if not self.keeps_kernels or not kernel.digest:
            return ""
        launches = find_given_launches(kernel, self._options)
        n_sharing = n_kernels if shares_limits(self._options, launches) else 1
        return digest_parts(
            [
                b"kernel",
                f"{kernel.digest} {n_sharing}".encode(),
                self._option_key,
                *map(self._encode, launches),
                b"gpus",
                *map(self._encode, gpus),
            ]
        )

    def find_kernel(self, key: str) -> KernelResult | None:
        """Return a result; None where there is none. The kernel may have had another place."""
        found = self.store.find(key, KernelResult)
        self.n_misses += found is None
        return found

    def finish(self) -> None:
        """Keep the folder within its limit, once a run has added much to it."""
        if self.n_misses >= _PRUNE_MISSES:
            self.store.prune()

    def list_notes(self) -> tuple[str, ...]:
        """Return what a user should know of the folder, one sentence each."""
        folder, notes = self.store.root, []
        if self.store.n_damaged:
            notes.append(f"{folder}: {self.store.n_damaged} damaged entries were worked out again")
        if self.store.n_unwritten:
            notes.append(f"{folder}: {self.store.n_unwritten} entries could not be written")
        return tuple(notes)

    def _encode(self, value: Gpu | Launch) -> bytes:
        """Return the bytes of all that decides a result, made once: the value stays in memory with its id."""
        known = self._encoded.get(id(value))
        if known is None:
            facts = _list_gpu_facts(value) if isinstance(value, Gpu) else _list_launch_facts(value)
            known = self._encoded[id(value)] = value, encode_json(facts)
        return known[1]


def shares_limits(options: Options, launches: Sequence[Launch]) -> bool:
    """Return whether a kernel's report depends on how many others there are.

    launches: of the kernel, or all that it may have. One that is not executed has no limit to share.
    """
    executes = options.assumes_launch or any(one.arguments or one.grid is not None for one in launches)
    return executes and options.shares_steps


def _list_gpu_facts(gpu: Gpu) -> list[object]:
    return [gpu.key, gpu.file, gpu.arch]


def _list_launch_facts(launch: Launch) -> list[object]:
    return ["launch", replace(launch, arguments=()), list(map(_list_argument_facts, launch.arguments))]


def _list_argument_facts(argument: Argument) -> list[object]:
    value = argument.value
    content = [value.path, value.contents] if isinstance(value, Buffer) else repr(value)
    return [argument.parameter, type(value).__name__, content]
