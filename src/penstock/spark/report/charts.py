"""Charts as inline SVG: bars over time, bars by name, a line with the band it may leave. Text in, text out.

Called by report.page. No script and no request: hovering is the browser's own (<title>). Colours are classes, so that
the page's style sheet makes them light or dark. The drawing is about as wide as a phone, so that its text stays
readable there; on a larger screen it grows.
Law: names and labels are escaped here, and numbers are finite.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 420, 190
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 24
_INNER_WIDTH, _INNER_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_NAME_CHARACTERS_MAX = 30
_LABEL_WIDTH = 52

Render = Callable[[float], str]


class Bar(NamedTuple):
    label: str
    value: float
    hint: str
    is_whole: bool = True


class Point(NamedTuple):
    label: str
    likely: float
    low: float
    high: float


def bars_over_time(bars: Sequence[Bar], title: str, render: Render) -> str:
    """One bar a bucket; one that is not whole is drawn hollow."""
    if not bars:
        return ""
    axis = _Axis(max(bar.value for bar in bars), render)
    slot = _INNER_WIDTH / len(bars)
    width = max(1.0, slot * 0.78)
    parts = [axis.draw()]
    for number, bar in enumerate(bars):
        left = LEFT + number * slot + (slot - width) / 2
        top = axis.y(bar.value)
        height = TOP + _INNER_HEIGHT - top
        if bar.value > 0:
            height = max(1.0, height)
            top = TOP + _INNER_HEIGHT - height
        kind = "bar" if bar.is_whole else "bar part"
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1">'
            f"<title>{escape(bar.hint)}</title></rect>"
        )
    parts.append(_labels([bar.label for bar in bars], slot))
    return _svg(title, "".join(parts))


def bars_by_name(bars: Sequence[Bar], title: str) -> str:
    """Lying bars, the largest first, each with its name above and its amount at the end."""
    if not bars:
        return ""
    most = max((bar.value for bar in bars), default=0.0) or 1.0
    row = 30
    parts: list[str] = []
    for number, bar in enumerate(bars):
        top = number * row
        width = max(1.0, bar.value / most * (WIDTH - 2))
        parts.append(
            f'<text class="name" x="1" y="{top + 12}">{escape(shorten(bar.label))}</text>'
            f'<text class="amount" x="{WIDTH - 1}" y="{top + 12}" text-anchor="end">{escape(bar.hint)}</text>'
            f'<rect class="bar" x="1" y="{top + 17}" width="{width:.1f}" height="7" rx="2">'
            f"<title>{escape(bar.label)}: {escape(bar.hint)}</title></rect>"
        )
    return _svg(title, "".join(parts), height=len(bars) * row)


def line_with_band(points: Sequence[Point], title: str, render: Render) -> str:
    if len(points) < 2:
        return ""
    axis = _Axis(max(point.high for point in points), render)
    slot = _INNER_WIDTH / (len(points) - 1)
    places = [LEFT + number * slot for number in range(len(points))]
    upper = [f"{x:.1f},{axis.y(point.high):.1f}" for x, point in zip(places, points, strict=True)]
    lower = [f"{x:.1f},{axis.y(point.low):.1f}" for x, point in zip(places, points, strict=True)]
    middle = [f"{x:.1f},{axis.y(point.likely):.1f}" for x, point in zip(places, points, strict=True)]
    parts = [
        axis.draw(),
        f'<polygon class="band" points="{" ".join([*upper, *reversed(lower)])}"/>',
        f'<polyline class="line" points="{" ".join(middle)}"/>',
    ]
    for x, point in zip(places, points, strict=True):
        hint = f"{point.label}: {render(point.likely)} ({render(point.low)} to {render(point.high)})"
        # Something to point at: the line alone is too thin for a finger.
        parts.append(
            f'<rect class="touch" x="{x - slot / 2:.1f}" y="{TOP}" width="{slot:.1f}" height="{_INNER_HEIGHT}">'
            f"<title>{escape(hint)}</title></rect>"
        )
    parts.append(_labels([point.label for point in points], slot, is_centred=False))
    return _svg(title, "".join(parts))


def shorten(name: str) -> str:
    return name if len(name) <= _NAME_CHARACTERS_MAX else f"{name[: _NAME_CHARACTERS_MAX - 1]}…"


class _Axis:
    """From nothing to a round number at or above the highest value, with a line at each quarter or so."""

    def __init__(self, highest: float, render: Render) -> None:
        assert math.isfinite(highest)
        self._render = render
        self._step = round_step(highest / 4) if highest > 0 else 1.0
        self.top = self._step * max(1, math.ceil(highest / self._step - 1e-9))

    def y(self, value: float) -> float:
        return TOP + _INNER_HEIGHT * (1 - min(1.0, max(0.0, value) / self.top))

    def draw(self) -> str:
        parts: list[str] = []
        for number in range(round(self.top / self._step) + 1):
            value = number * self._step
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text class="tick" x="{LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">'
                f"{escape(self._render(value))}</text>"
            )
        return "".join(parts)


def round_step(rough: float) -> float:
    """The next of 1, 2, 2.5, 5, 10, 20 … at or above."""
    magnitude = 10.0 ** math.floor(math.log10(rough))
    return next(step * magnitude for step in _STEPS if step * magnitude >= rough * (1 - 1e-9))


def _labels(labels: Sequence[str], slot: float, *, is_centred: bool = True) -> str:
    """As many as fit beside each other, from the first on; one that would stand out at the right is left out."""
    every = max(1, math.ceil(_LABEL_WIDTH / slot))
    shift = slot / 2 if is_centred else 0.0
    parts: list[str] = []
    for number in range(0, len(labels), every):
        x = LEFT + number * slot + shift
        if x + _LABEL_WIDTH / 2 <= WIDTH:
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 7}" text-anchor="middle">{escape(labels[number])}</text>'
            )
    return "".join(parts)


def _svg(title: str, inner: str, height: int = HEIGHT) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>{inner}</svg>"
    )
