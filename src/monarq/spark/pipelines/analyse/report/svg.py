"""Charts over time as SVG: lines, and areas on top of each other. Colours come from the page's
style by class, so that a chart is right in light and in dark.

Whatever is shown is escaped here. A chart says in words what it is and what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby

from monarq.spark.pipelines.analyse.figures import Window
from monarq.spark.pipelines.analyse.report.scales import Scale, times
from monarq.spark.pipelines.analyse.wording import clock_time, plain

WIDTH, HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 24
#: About how wide a letter of a tick is: nobody measures text here.
_LETTER = 6.0

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    name: str
    values: Values
    style: str
    """A class of the page's style: `s1` … `s6`, `bad`, `faint`."""


@dataclass(frozen=True)
class Chart:
    key: str
    """Unique in the page."""
    title: str
    window: Window
    scale: Scale
    lines: Sequence[Line]
    in_words: Callable[[float], str]
    stacked: bool = False
    marks: Sequence[int] = field(default_factory=tuple)
    """Buckets at which something changed."""

    @property
    def summary(self) -> str:
        """For those who cannot see it."""
        parts = []
        for line in self.lines:
            values = [value for value in line.values if value is not None]
            if values:
                parts.append(
                    f"{line.name}: {self.in_words(min(values))} to {self.in_words(max(values))}, "
                    f"at the end {self.in_words(values[-1])}"
                )
        return "; ".join(parts) or "nothing was measured"


def draw(chart: Chart) -> str:
    body = [
        *_grid(chart),
        *_marks(chart),
        *(_areas(chart) if chart.stacked else _lines(chart)),
        *_hovers(chart),
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-labelledby="{chart.key}-t {chart.key}-d">'
        f'<title id="{chart.key}-t">{_text(chart.title)}</title>'
        f'<desc id="{chart.key}-d">{_text(chart.summary)}</desc>{"".join(body)}</svg>'
    )


def _text(text: str) -> str:
    return escape(plain(text, 400))


def _x(chart: Chart, place: float) -> float:
    """Of a bucket's number, with fractions."""
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * place / chart.window.buckets


def _y(chart: Chart, value: float) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * chart.scale.place(value)


def _grid(chart: Chart) -> list[str]:
    right, bottom = WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for value, label in chart.scale.ticks:
        y = _y(chart, value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">'
            f"{escape(label)}</text>"
        )
    written_to = 0.0
    for place, label in times(chart.window):
        x = _LEFT + (right - _LEFT) * place
        anchor = "end" if place > 0.96 else "start" if place < 0.04 else "middle"
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom}v4"/>')
        width = len(label) * _LETTER
        begin = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        if begin < written_to:
            continue
        written_to = begin + width + _LETTER
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )
    parts.append(f'<path class="axis" d="M{_LEFT} {bottom}H{right}"/>')
    return parts


def _marks(chart: Chart) -> list[str]:
    parts = []
    for bucket in chart.marks:
        x = _x(chart, bucket)
        label = clock_time(chart.window.at(bucket), chart.window)
        anchor = "end" if x > WIDTH * 0.75 else "start"
        shift = -4 if anchor == "end" else 4
        parts.append(f'<path class="mark" d="M{x:.1f} {_TOP - 4}V{HEIGHT - _BOTTOM}"/>')
        parts.append(
            f'<text class="mark-label" x="{x + shift:.1f}" y="{_TOP - 3}" text-anchor="{anchor}">'
            f"{escape(label)}</text>"
        )
    return parts


def _lines(chart: Chart) -> list[str]:
    parts = []
    for line in chart.lines:
        for run in _runs(line.values):
            points = [(_x(chart, place + 0.5), _y(chart, value)) for place, value in run]
            if len(points) == 1:
                x, y = points[0]
                parts.append(
                    f'<circle class="dot {line.style}" cx="{x:.1f}" cy="{y:.1f}" r="1.8"/>'
                )
            else:
                parts.append(f'<path class="line {line.style}" d="M{_path(points)}"/>')
    return parts


def _areas(chart: Chart) -> list[str]:
    below = [0.0] * chart.window.buckets
    parts = []
    for line in chart.lines:
        above = [low + (value or 0.0) for low, value in zip(below, line.values, strict=True)]
        upper = [(_x(chart, place + 0.5), _y(chart, value)) for place, value in enumerate(above)]
        lower = [(_x(chart, place + 0.5), _y(chart, value)) for place, value in enumerate(below)]
        parts.append(f'<path class="area {line.style}" d="M{_path([*upper, *lower[::-1]])}Z"/>')
        below = above
    return parts


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _runs(values: Values) -> list[list[tuple[int, float]]]:
    """Stretches without a gap: where nothing was measured there is no line."""
    runs = []
    for _, stretch in groupby(
        ((place, value) for place, value in enumerate(values) if value is not None),
        key=_gap_counter(values),
    ):
        runs.append(list(stretch))
    return runs


def _gap_counter(values: Values) -> Callable[[tuple[int, float]], int]:
    missing = []
    number = 0
    for value in values:
        number += value is None
        missing.append(number)
    return lambda point: missing[point[0]]


def _hovers(chart: Chart) -> list[str]:
    """What a pointer over a bucket is told."""
    width = (WIDTH - _LEFT - _RIGHT) / chart.window.buckets
    parts = []
    for bucket in range(chart.window.buckets):
        told = [
            f"{line.name}: {chart.in_words(value)}"
            for line in chart.lines
            if (value := line.values[bucket]) is not None
        ]
        if told:
            when = clock_time(chart.window.at(bucket), chart.window)
            parts.append(
                f'<rect class="hover" x="{_x(chart, bucket):.1f}" y="{_TOP}" width="{width:.1f}" '
                f'height="{HEIGHT - _TOP - _BOTTOM}"><title>{_text(when)}\n'
                + "\n".join(map(_text, told))
                + "</title></rect>"
            )
    return parts
