"""Points in a plane as plain coordinates, which a template draws as SVG: axes, ticks, labels that keep apart.

Both axes are logarithmic where values span more than a factor of three, else linear. A label stands above
its point, else below or beside, wherever it meets no other label, point or interval yet; one that fits
nowhere is left to the point's tooltip.
"""

import math
import re
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

_WIDTH, _HEIGHT = 720.0, 380.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 24.0, 16.0, 46.0
_MIN_LOG_RATIO = 3.0
_MARGIN_SHARE = 0.08  # of the span, free at both ends
_LABEL_HEIGHT, _CHARACTER_WIDTH = 14.0, 6.4
_POINT_GAP = 8.0
_MAX_TICKS = 7
_LEAST_VALUE = 1e-300  # what is less counts as nothing: quotients of subnormal numbers have no digits
_TRAILING_ZEROS = re.compile(r"(?<=\d)\.0+(?!\d)|(?<=\.\d)0+(?!\d)|(?<=\.\d\d)0+(?!\d)")


class PlanePoint(Struct, frozen=True):
    """A point to draw; the range is of x."""

    x: float
    y: float
    label: str
    tip: str
    series: str  # chooses the colour
    is_best: bool = False
    is_faded: bool = False
    x_low: float | None = None
    x_high: float | None = None


class Axis(Struct, frozen=True):
    """Title of an axis, how its numbers are written, and a limit to draw on it."""

    title: str
    format: Callable[[float], str]
    limit: float | None = None
    ticks: tuple[float, ...] = ()  # where they stand; at round values if none is given


class DrawnPoint(Struct, frozen=True):
    """A point in pixels; `anchor` is empty where its label has no room."""

    x: float
    y: float
    label: str
    tip: str
    color: int
    is_best: bool
    is_faded: bool
    range_from: float
    range_to: float
    label_x: float = 0.0
    label_y: float = 0.0
    anchor: str = ""


class Tick(Struct, frozen=True):
    """A tick: place in pixels and its text."""

    at: float
    text: str


class ScatterChart(Struct, frozen=True):
    """All that the template draws."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    x_title: str
    y_title: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    points: tuple[DrawnPoint, ...]
    front: str  # path of the line that joins the Pareto front, empty for less than two points
    x_limit: float | None
    y_limit: float | None
    series: tuple[tuple[str, int], ...]  # name and colour


def make_scatter_chart(
    points: Sequence[PlanePoint], x_axis: Axis, y_axis: Axis, front: Sequence[tuple[float, float]] = ()
) -> ScatterChart:
    """Return the chart; front: points in data units, which a line joins in the order of x."""
    xs = [value for p in points for value in (p.x, p.x_low, p.x_high) if value is not None]
    across = _Scale(xs + _get_limit(x_axis, xs), _LEFT, _WIDTH - _RIGHT)
    ys = [p.y for p in points]
    up = _Scale(ys + _get_limit(y_axis, ys), _HEIGHT - _BOTTOM, _TOP)
    colors = {name: place for place, name in enumerate(dict.fromkeys(p.series for p in points))}
    drawn = [
        DrawnPoint(
            x=across.place(p.x),
            y=up.place(p.y),
            label=p.label,
            tip=p.tip,
            color=colors[p.series] % 10,
            is_best=p.is_best,
            is_faded=p.is_faded,
            range_from=across.place(p.x if p.x_low is None else p.x_low),
            range_to=across.place(p.x if p.x_high is None else p.x_high),
        )
        for p in points
    ]
    joined = [(across.place(x), up.place(y)) for x, y in sorted(front)]
    return ScatterChart(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        x_title=x_axis.title,
        y_title=y_axis.title,
        x_ticks=across.make_ticks(x_axis),
        y_ticks=up.make_ticks(y_axis),
        points=tuple(_place_labels(drawn)),
        front="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in joined) if len(joined) > 1 else "",
        x_limit=None if x_axis.limit is None else across.place(x_axis.limit),
        y_limit=None if y_axis.limit is None else up.place(y_axis.limit),
        series=tuple((name, place % 10) for name, place in colors.items()),
    )


def _get_limit(axis: Axis, values: Sequence[float]) -> list[float]:
    """Return the limit of an axis where it lies within a factor of ten of the values, else nothing."""
    if axis.limit is None or not values:
        return []
    return [axis.limit] if min(values) / 10 <= axis.limit <= max(values) * 10 else []


class _Scale:
    """Values to pixels, on a logarithmic or a linear axis."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        self.is_log = low > 0.0 and high / low > _MIN_LOG_RATIO
        low, high = (self._warp(low), self._warp(high))
        span = (high - low) or abs(high)
        span = span if span > _LEAST_VALUE else 1.0
        self.low, self.high = low - _MARGIN_SHARE * span, high + _MARGIN_SHARE * span
        self.start, self.end = start, end

    def _warp(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def place(self, value: float) -> float:
        """Return the pixel of a value; one beyond the axis stays at its end."""
        warped = self._warp(max(value, _LEAST_VALUE) if self.is_log else value)
        share = (warped - self.low) / (self.high - self.low)
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)

    def make_ticks(self, axis: Axis) -> tuple[Tick, ...]:
        """Return ticks where the axis has them, else at round values; `5.00 s` is written `5 s`."""
        found = self._list_log_values() if self.is_log else self._list_linear_values()
        return tuple(
            Tick(self.place(value), _TRAILING_ZEROS.sub("", axis.format(value)))
            for value in axis.ticks or found
        )

    def _list_log_values(self) -> list[float]:
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        for steps in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,)):
            found = [step * 10.0**decade for decade in decades for step in steps]
            found = [value for value in found if value > 0.0 and self.low <= math.log10(value) <= self.high]
            if len(found) <= _MAX_TICKS:
                return found
        return found[:: -(-len(found) // _MAX_TICKS)]

    def _list_linear_values(self) -> list[float]:
        rough = (self.high - self.low) / (_MAX_TICKS - 1)
        decade = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * decade for factor in (1, 2, 5, 10) if factor * decade >= rough)
        first = math.ceil(self.low / step)
        last = math.floor(self.high / step)
        return [round(place * step, 12) for place in range(first, last + 1)]


_Box = tuple[float, float, float, float]


def _place_labels(points: Sequence[DrawnPoint]) -> list[DrawnPoint]:
    """Return points with places for their labels; the best ones choose first."""
    taken: list[_Box] = [
        (min(p.x - 5, p.range_from), p.y - 5, max(p.x + 5, p.range_to), p.y + 5) for p in points
    ]
    placed: dict[int, DrawnPoint] = {}
    for index in sorted(range(len(points)), key=lambda i: (not points[i].is_best, points[i].is_faded, i)):
        placed[index] = _place_label(points[index], taken, index)
    return [placed[index] for index in range(len(points))]


def _place_label(point: DrawnPoint, taken: list[_Box], own: int) -> DrawnPoint:
    width = _CHARACTER_WIDTH * len(point.label)
    left_end, right_end = min(point.x, point.range_from), max(point.x, point.range_to)
    for anchor, x, y in (
        ("middle", point.x, point.y - _POINT_GAP),
        ("middle", point.x, point.y + _POINT_GAP + _LABEL_HEIGHT - 3),
        ("start", right_end + _POINT_GAP, point.y + 4),
        ("end", left_end - _POINT_GAP, point.y + 4),
        ("start", point.x, point.y - _POINT_GAP),
        ("end", point.x, point.y - _POINT_GAP),
    ):
        left = x - {"start": 0.0, "end": width, "middle": width / 2}[anchor]
        box = (left, y - _LABEL_HEIGHT + 3, left + width, y + 3)
        is_inside = box[0] >= _LEFT and box[2] <= _WIDTH - 2 and box[1] >= 2 and box[3] <= _HEIGHT - _BOTTOM
        if is_inside and not any(_meet(box, other) for i, other in enumerate(taken) if i != own):
            taken.append(box)
            return replace(point, label_x=x, label_y=y, anchor=anchor)
    return point


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
