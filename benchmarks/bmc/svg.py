"""Figures of a sweep as SVG text: lines over logarithmic or plain axes, stacked and grouped bars, and columns of dots. Needs nothing but Python."""

import math
from dataclasses import dataclass, field
from html import escape

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#8c564b"]
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 78, 210, 44, 56


@dataclass
class Line:
    name: str
    points: list[tuple[float, float]]
    marked: tuple[float, float] | None = None  # drawn as a ring, such as the best point
    dots: bool = True


@dataclass
class Bar:
    name: str
    parts: list[float]


@dataclass
class Group:
    name: str
    bars: list[tuple[float, str]]  # of each series: height, and the text above it


@dataclass
class Column:
    values: list[float]  # without any it is left out
    mean: float = 0
    whole: bool = True  # else the mean is dashed


@dataclass
class Columns:
    name: str
    target: float
    columns: list[Column]  # of each series


@dataclass
class Figure:
    title: str
    x_label: str
    y_label: str
    body: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, what: str, anchor: str = "middle", more: str = "") -> None:
        self.body.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(what)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, more: str = 'stroke="#dddddd"') -> None:
        self.body.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {more}/>')

    def legend(self, row: int, colour: str, name: str) -> None:
        y = TOP + 10 + 18 * row
        self.body.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{y - 9}" width="11" height="11" fill="{colour}"/>')
        self.text(WIDTH - RIGHT + 30, y, name, "start")

    def done(self) -> str:
        self.text(LEFT, TOP - 18, self.title, "start", 'font-weight="bold"')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, self.x_label)
        middle = (TOP + HEIGHT - BOTTOM) / 2
        self.text(18, middle, self.y_label, "middle", f'transform="rotate(-90 18 {middle:.1f})"')
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                f'font-size="12">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(self.body) + "\n</svg>\n")


def ticks(top: float) -> list[float]:
    """Round numbers from 0 up to what covers `top`."""
    if top <= 0:
        return [0.0, 1.0]
    step = 10.0 ** math.floor(math.log10(top / 4))
    step *= next(m for m in (1, 2, 5, 10) if step * m * 5 >= top)
    return [step * i for i in range(math.ceil(top / step - 1e-9) + 1)]


def number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) else f"{value:g}"


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 and so on, from what lies below `low` to what lies above `high`."""
    marks = [m * 10.0 ** e for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    first = max(i for i, mark in enumerate(marks) if mark <= low * (1 + 1e-9))
    last = min(i for i, mark in enumerate(marks) if mark >= high * (1 - 1e-9))
    return marks[first:max(last, first + 1) + 1]


def y_axis(figure: Figure, values: list[float], log: bool = False):
    """Draws the axis, from 0 unless it is logarithmic; returns value -> pixel."""
    marks = log_ticks(min(values), max(values)) if log else ticks(max(values))
    scale = math.log if log else float
    low, high = scale(marks[0]), scale(marks[-1])
    bottom_px, top_px = HEIGHT - BOTTOM, TOP

    def y(value: float) -> float:
        return bottom_px - (bottom_px - top_px) * (scale(value) - low) / (high - low)

    for mark in marks:
        figure.line(LEFT, y(mark), WIDTH - RIGHT, y(mark))
        figure.text(LEFT - 8, y(mark) + 4, f"{mark:g}", "end")
    return y


def lines(title: str, x_label: str, y_label: str, all_lines: list[Line], log: bool = False,
          verticals: list[tuple[float, str]] = ()) -> str:
    figure = Figure(title, x_label, y_label)
    xs = [x for line in all_lines for x, _ in line.points] + [x for x, _ in verticals]
    scale = math.log2 if log else float
    low, high = scale(min(xs)), scale(max(xs))
    y = y_axis(figure, [value for line in all_lines for _, value in line.points], log)

    def x(value: float) -> float:
        return LEFT + 10 + (WIDTH - RIGHT - LEFT - 20) * (scale(value) - low) / ((high - low) or 1)

    marks = [2.0 ** i for i in range(round(low), round(high) + 1)] if log else [m for m in ticks(max(xs)) if m <= max(xs)]
    for mark in marks:
        figure.text(x(mark), HEIGHT - BOTTOM + 18, number(mark))
    for value, name in verticals:
        figure.line(x(value), TOP, x(value), HEIGHT - BOTTOM, 'stroke="#333333" stroke-dasharray="5 4"')
        figure.text(x(value) + 4, TOP + 10, name, "start")
    for i, line in enumerate(all_lines):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        figure.body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        for a, b in line.points if line.dots else []:
            figure.body.append(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.6" fill="{colour}"/>')
        if line.marked:
            figure.body.append(f'<circle cx="{x(line.marked[0]):.1f}" cy="{y(line.marked[1]):.1f}" r="6.5" fill="none" '
                               f'stroke="{colour}" stroke-width="1.8"/>')
        figure.legend(i, colour, line.name)
    return figure.done()


def bars(title: str, y_label: str, parts: list[str], all_bars: list[Bar]) -> str:
    figure = Figure(title, "", y_label)
    y = y_axis(figure, [sum(bar.parts) for bar in all_bars])
    slot = (WIDTH - RIGHT - LEFT) / len(all_bars)
    for i, bar in enumerate(all_bars):
        at, left = 0.0, LEFT + slot * (i + 0.15)
        for part, value in enumerate(bar.parts):
            figure.body.append(f'<rect x="{left:.1f}" y="{y(at + value):.1f}" width="{slot * 0.7:.1f}" '
                               f'height="{y(at) - y(at + value):.1f}" fill="{COLOURS[part % len(COLOURS)]}"/>')
            at += value
        centre = left + slot * 0.35
        figure.text(centre, HEIGHT - BOTTOM + 14, bar.name, "end",
                    f'font-size="10" transform="rotate(-25 {centre:.1f} {HEIGHT - BOTTOM + 14})"')
    for part, name in enumerate(parts):
        figure.legend(part, COLOURS[part % len(COLOURS)], name)
    return figure.done()


def grouped(title: str, y_label: str, series: list[str], groups: list[Group]) -> str:
    """For each group a bar of every series side by side, each with its text above it."""
    figure = Figure(title, "", y_label)
    y = y_axis(figure, [height for group in groups for height, _ in group.bars])
    slot = (WIDTH - RIGHT - LEFT) / len(groups)
    for i, group in enumerate(groups):
        width = slot * 0.84 / len(series)
        figure.text(LEFT + slot * (i + 0.5), HEIGHT - BOTTOM + 18, group.name)
        for j, (height, label) in enumerate(group.bars):
            x = LEFT + slot * (i + 0.08) + width * j
            figure.body.append(f'<rect x="{x:.1f}" y="{y(height):.1f}" width="{width - 1:.1f}" height="{y(0) - y(height):.1f}" fill="{COLOURS[j % len(COLOURS)]}"/>')
            figure.text(x + width / 2, y(height) - 4, label, more='font-size="9"')
    for j, name in enumerate(series):
        figure.legend(j, COLOURS[j % len(COLOURS)], name)
    return figure.done()


def columns(title: str, y_label: str, series: list[str], groups: list[Columns]) -> str:
    """A column of dots for each series in each group, its mean as a bar, the group's target as a dashed line, and a line at 1."""
    figure = Figure(title, "", y_label)
    y = y_axis(figure, [1.0] + [value for group in groups for column in group.columns for value in [group.target, *column.values]], log=True)
    figure.line(LEFT, y(1.0), WIDTH - RIGHT, y(1.0), 'stroke="#777777"')
    slot = (WIDTH - RIGHT - LEFT) / len(groups)
    for i, group in enumerate(groups):
        left = LEFT + slot * i
        figure.text(left + slot / 2, HEIGHT - BOTTOM + 18, group.name)
        figure.line(left + 3, y(group.target), left + slot - 3, y(group.target), 'stroke="#333333" stroke-dasharray="5 4"')
        for j, column in enumerate(group.columns):
            colour, x = COLOURS[j % len(COLOURS)], left + slot * (j + 1) / (len(series) + 1)
            figure.body += [f'<circle cx="{x:.1f}" cy="{y(value):.1f}" r="2" fill="{colour}" fill-opacity="0.45"/>' for value in column.values]
            if column.values:
                dashes = "" if column.whole else 'stroke-dasharray="2 2"'
                figure.line(x - 5, y(column.mean), x + 5, y(column.mean), f'stroke="{colour}" stroke-width="3" {dashes}')
    for j, name in enumerate(series):
        figure.legend(j, COLOURS[j % len(COLOURS)], name)
    return figure.done()
