"""Draw random control-flow graphs and build kernels that have them."""

from hypothesis import strategies as st
from paths import parse_lines

from analyzer.flow.cfg import Cfg, build_cfg

BlockTargets = tuple[tuple[int, ...], ...]
_MAX_TARGETS_PER_BLOCK = 2


def make_cfg(targets: BlockTargets) -> Cfg:
    """Build the CFG of a kernel whose block b goes to `targets[b]`, at most two, or exits if there are none.

    Every block is three instructions, so that addresses do not depend on its kind.
    """
    texts = []
    for block, ways in enumerate(targets):
        texts.append("MOV R1, R2")
        places = [16 * 3 * way for way in ways]
        texts.append(f"@P0 BRA {places[1]:#x}" if len(places) == _MAX_TARGETS_PER_BLOCK else "NOP")
        texts.append(f"BRA {places[0]:#x}" if places else "EXIT")
        assert len(texts) == 3 * (block + 1)
    return build_cfg(parse_lines(*texts))


@st.composite
def random_graphs(draw: st.DrawFn, max_blocks: int = 9) -> BlockTargets:
    """Draw any graph: edges may go anywhere, also into the middle of a loop."""
    n = draw(st.integers(1, max_blocks))
    ways = st.lists(st.integers(0, n - 1), max_size=_MAX_TARGETS_PER_BLOCK, unique=True)
    return tuple(tuple(draw(ways)) for _ in range(n))


@st.composite
def structured_graphs(draw: st.DrawFn, max_depth: int = 3) -> BlockTargets:
    """Draw nested sequences, branches and loops, a reducible graph: every loop has one header."""
    targets: list[list[int]] = []

    def block() -> int:
        targets.append([])
        return len(targets) - 1

    def piece(depth: int) -> tuple[int, int]:
        """Add blocks; return the first and the last one, which can take one more target."""
        kind = draw(st.sampled_from(["plain", "sequence", "branch", "one_sided", "while", "do"]))
        if depth == 0 or kind == "plain":
            only = block()
            return only, only
        if kind == "sequence":
            first, middle = piece(depth - 1)
            then, last = piece(depth - 1)
            targets[middle].append(then)
            return first, last
        if kind in ("branch", "one_sided"):
            head, join = block(), block()
            arms = [piece(depth - 1) for _ in range(2 if kind == "branch" else 1)]
            for first, last in arms:
                targets[head].append(first)
                targets[last].append(join)
            if kind == "one_sided":
                targets[head].append(join)
            return head, join
        head, after = block(), block()
        first, last = piece(depth - 1)
        if kind == "while":
            targets[head] += [first, after]
            targets[last].append(head)
        else:
            targets[head].append(first)
            foot = block()
            targets[last].append(foot)
            targets[foot] += [head, after]
        return head, after

    root = block()
    first, _ = piece(max_depth)
    targets[root].append(first)
    return tuple(map(tuple, targets))
