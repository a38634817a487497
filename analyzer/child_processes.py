"""Limits of the processes that this one starts: they end with it, and cannot run or write for ever.

A tool runs in a process group of its own, because it may start further ones (cuobjdump starts nvdisasm): the
group is killed once its output is no longer wanted. Should this process be killed itself, Linux kills the
tool, and what the tool has started ends for want of a reader or at its limit of processor time.

A tool that prints nothing is stopped by its own processor time, not by the clock on the wall: how long that
takes depends on what else the machine does. Only one that does nothing at all is stopped by the clock.
"""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

_PR_SET_PDEATHSIG = 1
_PIECE_BYTES = 1 << 20
_MAX_MESSAGE_BYTES = 4096
_MAX_PROCESSOR_S = 6 * 3600
_MAX_FILE_BYTES = 16 << 30  # that a tool may write
_MAX_LOOK_S = 0.5  # between two looks at a silent tool
# A tool that waits for a disk or for its turn takes no processor time either: so it has this much longer.
_IDLE_RATIO = 10


def make_parent_bond(parent: int | None = None) -> Callable[[], None]:
    """Return a function to call in a child: the kernel kills the child once the thread that made it ends.

    It does nothing outside Linux. It loads no library in the child, where that may deadlock after a fork.

    parent: process id, this process if None.
    """
    if sys.platform != "linux":
        return lambda: None
    try:
        set_process_option = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return lambda: None
    expected = os.getpid() if parent is None else parent

    def bond() -> None:
        set_process_option(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != expected:  # it ended before this call
            os.kill(os.getpid(), signal.SIGKILL)

    return bond


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C for a moment here, and for good in processes that are started meanwhile.

    Ctrl-C goes to all processes of a terminal: workers leave the answer to their parent, which ends them.
    """
    try:
        old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # only the main thread may
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


def make_tool_setup(
    max_file_bytes: int = _MAX_FILE_BYTES, max_memory_bytes: int | None = None
) -> Callable[[], None]:
    """Return a function that prepares a child to run a tool: bound to its parent, with limits."""
    import resource

    bond = make_parent_bond()
    wanted = [(resource.RLIMIT_CPU, _MAX_PROCESSOR_S), (resource.RLIMIT_FSIZE, max_file_bytes)]
    if max_memory_bytes is not None:
        wanted.append((resource.RLIMIT_AS, max_memory_bytes))
    limits = []
    for kind, most in wanted:
        hard = resource.getrlimit(kind)[1]
        limits.append((kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)))

    def prepare() -> None:
        bond()
        for kind, limit in limits:
            resource.setrlimit(kind, limit)

    return prepare


class ToolLimitError(Exception):
    """A tool was silent for too long, or printed too much."""


class _SilenceTimer:
    """Measures what a process group has worked, and how long it has not, since it printed last."""

    def __init__(self, group: int, max_silence_s: float) -> None:
        self._group, self._max_silence_s = group, max_silence_s
        self._first_s: float | None = None  # processor time of the group when the silence was noticed
        self._worked_s = 0.0  # processor time at the last look at which it had grown
        self._worked_at_s = 0.0  # when that was, by the clock

    @property
    def look_s(self) -> float:
        """Seconds to wait before the next look."""
        return min(_MAX_LOOK_S, self._max_silence_s)

    def restart(self) -> None:
        """Begin anew: it has printed."""
        self._first_s = None

    def check(self) -> None:
        """Raise ToolLimitError where it has worked for too long in silence, or done nothing for longer."""
        now_s, spent_s = time.monotonic(), _measure_group(self._group)
        if self._first_s is None or spent_s > self._worked_s:
            self._first_s = spent_s if self._first_s is None else self._first_s
            self._worked_s, self._worked_at_s = spent_s, now_s
        if spent_s - self._first_s > self._max_silence_s:
            raise ToolLimitError(f"it printed nothing in {self._max_silence_s:g} s of processor time")
        max_idle_s = _IDLE_RATIO * self._max_silence_s
        if now_s - self._worked_at_s > max_idle_s:
            raise ToolLimitError(f"it neither printed anything nor worked for {max_idle_s:g} s")


def _measure_group(group: int) -> float:
    """Return the processor time in seconds of a process group, with that of ended children.

    0 where the system does not tell: then no work is ever seen.
    """
    ticks = 0
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                ticks += _count_ticks(name, group)
    return ticks / os.sysconf("SC_CLK_TCK")


def _count_ticks(process: str, group: int) -> int:
    """Return the clock ticks that a process has run, 0 for one of another group, or that has ended."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before may hold anything
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) if int(fields[2]) == group else 0


class ToolRun:
    """One run of a tool; `status` and `messages` hold once `read_output` is through.

    max_silence_s: seconds of processor time that it may work without printing; by the clock it may do nothing
        at all for ten times as many.
    max_output_bytes: of its standard output.
    max_file_bytes, max_memory_bytes: of each file that it writes, and of its address space.
    max_message_bytes: how much of the end of standard error is kept.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        max_silence_s: float,
        max_output_bytes: int,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
        max_file_bytes: int = _MAX_FILE_BYTES,
        max_memory_bytes: int | None = None,
        max_message_bytes: int = _MAX_MESSAGE_BYTES,
    ) -> None:
        self.command, self.folder, self.environment = tuple(command), folder, environment
        self.max_silence_s, self.max_output_bytes = max_silence_s, max_output_bytes
        self.max_file_bytes, self.max_memory_bytes = max_file_bytes, max_memory_bytes
        self.max_message_bytes = max_message_bytes
        self.status = 0  # negative: the signal that killed it
        self.messages = b""  # the end of standard error

    def read_output(self) -> Iterator[bytes]:
        """Yield the standard output as it comes. Raises OSError if the tool does not start.

        Raises ToolLimitError if it is silent for too long or prints too much.
        """
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.environment,
            process_group=0,
            preexec_fn=make_tool_setup(self.max_file_bytes, self.max_memory_bytes),
        )
        timer = _SilenceTimer(process.pid, self.max_silence_s)
        try:
            yield from self._read_pipes(process, timer)
            self.status = _wait(process, timer)
        finally:
            _stop_group(process)

    def _read_pipes(self, process: "subprocess.Popen[bytes]", timer: _SilenceTimer) -> Iterator[bytes]:
        """Yield what the tool prints, until it has closed both pipes."""
        n_bytes = 0
        with selectors.DefaultSelector() as selector:
            assert process.stdout is not None
            assert process.stderr is not None
            selector.register(process.stdout, selectors.EVENT_READ)
            selector.register(process.stderr, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(timer.look_s)
                if ready:
                    timer.restart()
                else:
                    timer.check()
                for key, _ in ready:
                    piece = os.read(key.fd, _PIECE_BYTES)
                    if not piece:
                        selector.unregister(key.fileobj)
                    elif key.fd == process.stderr.fileno():
                        self.messages = (self.messages + piece)[-self.max_message_bytes :]
                    else:
                        n_bytes += len(piece)
                        if n_bytes > self.max_output_bytes:
                            raise ToolLimitError(f"it printed more than {self.max_output_bytes >> 20:,} MiB")
                        yield piece


def _wait(process: "subprocess.Popen[bytes]", timer: _SilenceTimer) -> int:
    """Return the status of a tool that has closed its output. Raises ToolLimitError where it does not end."""
    while True:
        try:
            return process.wait(timer.look_s)
        except subprocess.TimeoutExpired:
            timer.check()


def _stop_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill what still runs of a tool's process group, and reap the tool."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    process.wait()
