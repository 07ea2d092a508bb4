# SPDX-License-Identifier: GPL-2.0-or-later
"""Panels of lines above one axis, as an SVG file that stands alone.

One column, 420 units wide: on a telephone the text has its usual size, on a large window it is
larger.  Light or dark as the reader's system is.  Lines differ in their markers, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from hmmbench.report.page.heat import short

WIDTH, LEFT, RIGHT = 420.0, 50.0, 16.0
#: Height of the first panel and of the others.
TALL, LOW = 176.0, 96.0
#: Characters of a line of notes.
WRAP = 58

#: light, dark; of lines in their order.
COLOURS = (("#0b6e6e", "#5cc2bd"), ("#b4540a", "#f0a35e"), ("#5b4b9a", "#b3a4f0"))

#: class: (property, light, dark)
_STYLES = {
    "paper": ("fill", "#fbfaf8", "#15171a"), "ink": ("fill", "#1d1f23", "#e6e4df"),
    "soft": ("fill", "#5c6068", "#a3a6ac"), "rule": ("stroke", "#dfdcd6", "#30343a"),
    "over": ("fill", "#efe9df", "#23262b"), "limit": ("stroke", "#1d1f23", "#e6e4df"),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """values -- one for each x, None where there is none."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """title -- what it shows, and the unit."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Limit:
    """A place on the axis with a side that is shaded; words are dropped where they have no room.

    above -- beyond it is where x is larger
    """

    at: float
    words: str
    beyond: str
    above: bool


@dataclass(frozen=True)
class Axis:
    """labels -- two lines for each x; they go with the first and the second of `titles`."""

    xs: Sequence[float]
    labels: Sequence[tuple[str, str]]
    titles: tuple[str, str]


def chart(
    title: str, notes: Sequence[str], axis: Axis, panels: Sequence[Panel],
    limit: Limit | None = None,
) -> str:  # fmt: skip
    """The file's text.  xs are positive and ascend."""
    root = ElementTree.Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": title,
    })  # fmt: skip
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "style").text = _style()
    paper = ElementTree.SubElement(root, "rect", {"class": "paper", "width": _n(WIDTH)})
    y = 28.0
    _text(root, 12, y, title, "ink head")
    for note in notes:
        for words in _wrapped(note):
            y += 17
            _text(root, 12, y, words, "soft")
    place = _Place(axis.xs)
    for k, panel in enumerate(panels):
        y = _panel(root, panel, axis, place, limit, y + 12, TALL if k == 0 else LOW, k == 0)
    y = _x_axis(root, axis, place, y)
    root.set("viewBox", f"0 0 {WIDTH:g} {y:g}")
    paper.set("height", _n(y))
    return ElementTree.tostring(root, encoding="unicode") + "\n"


class _Place:
    """x of a value: linear, or by its logarithm if that spreads the values better."""

    def __init__(self, xs: Sequence[float]) -> None:
        self.low, self.high = xs[0], xs[-1]
        self.log = self.high >= 4 * self.low

    def has(self, x: float) -> bool:
        return self.low <= x <= self.high

    def __call__(self, x: float) -> float:
        if self.high == self.low:
            return (LEFT + WIDTH - RIGHT) / 2
        x = min(max(x, self.low), self.high)
        share = (x - self.low) / (self.high - self.low)
        if self.log:
            share = math.log(x / self.low) / math.log(self.high / self.low)
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)


def _panel(
    root: ElementTree.Element, panel: Panel, axis: Axis, place: _Place, limit: Limit | None,
    y: float, height: float, first: bool,
) -> float:  # fmt: skip
    """Draws from y down; returns where it ends."""
    _text(root, 12, y + 18, panel.title, "ink strong")
    if len(panel.lines) > 1:
        _legend(root, panel, y + 18)
    top, bottom = y + 32, y + 32 + height
    if limit is not None:
        at, end = place(limit.at), WIDTH - RIGHT if limit.above else LEFT
        if not place.has(limit.at):
            at = LEFT if limit.at < axis.xs[0] else WIDTH - RIGHT
        ElementTree.SubElement(root, "rect", {
            "class": "over", "x": _n(min(at, end)), "y": _n(top),
            "width": _n(abs(end - at)), "height": _n(height),
        })  # fmt: skip
        if place.has(limit.at):
            ElementTree.SubElement(root, "line", {
                "class": "limit", "x1": _n(at), "x2": _n(at), "y1": _n(top), "y2": _n(bottom),
            })  # fmt: skip
    highest = max((v for line in panel.lines for v in line.values if v is not None), default=0)
    ticks = _ticks(highest, 4 if height == TALL else 2)
    # The words at the limit have a row of their own, above all points.
    room = height - (24 if first else 8)

    def up(value: float) -> float:
        return bottom - value / ticks[-1] * room

    for tick in ticks:
        ElementTree.SubElement(root, "line", {
            "class": "rule", "x1": _n(LEFT), "x2": _n(WIDTH - RIGHT),
            "y1": _n(up(tick)), "y2": _n(up(tick)),
        })  # fmt: skip
        _text(root, LEFT - 6, up(tick) + 4, _number(tick), "soft", "end")
    for k, line in enumerate(panel.lines):
        points = [
            (place(x), up(v), label, v)
            for x, label, v in zip(axis.xs, axis.labels, line.values, strict=True)
            if v is not None
        ]
        ElementTree.SubElement(root, "polyline", {
            "class": f"line c{k}", "points": " ".join(f"{x:.1f},{v:.1f}" for x, v, *_ in points),
        })  # fmt: skip
        for x, v, label, value in points:
            marker = _marker(root, k, x, v)
            ElementTree.SubElement(marker, "title").text = (
                f"{axis.titles[0]} {label[0]}: {value:g} {line.name}"
            )
    if first and limit is not None and place.has(limit.at):
        at = place(limit.at)
        for words, right in ((limit.words, not limit.above), (limit.beyond, limit.above)):
            if (WIDTH - RIGHT - at if right else at - LEFT) > 6.6 * len(words):
                _text(root, at + (6 if right else -6), top + 14, words, "ink",
                      "start" if right else "end")  # fmt: skip
    return bottom


def _legend(root: ElementTree.Element, panel: Panel, y: float) -> None:
    at = WIDTH - RIGHT
    for k, line in reversed(list(enumerate(panel.lines))):
        # No fonts here: a letter is this wide at most, on the average.
        at -= 6.9 * len(line.name)
        _text(root, at, y, line.name, "soft")
        _marker(root, k, at - 9, y - 4)
        at -= 28


def _marker(root: ElementTree.Element, k: int, x: float, y: float) -> ElementTree.Element:
    """Circle, square, triangle: told apart without colours."""
    if k == 0:
        return ElementTree.SubElement(
            root, "circle", {"class": "d0", "cx": _n(x), "cy": _n(y), "r": "3.5"}
        )
    outline = (
        f"M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4z" if k == 1
        else f"M{x - 4:.1f} {y + 3.4:.1f}h8l-4 -7.4z"
    )  # fmt: skip
    return ElementTree.SubElement(root, "path", {"class": f"d{k}", "d": outline})


def _x_axis(root: ElementTree.Element, axis: Axis, place: _Place, y: float) -> float:
    rows = 2 if axis.titles[1] else 1
    free = LEFT - 12
    for x, label in zip(axis.xs, axis.labels, strict=True):
        at = place(x)
        ElementTree.SubElement(root, "line", {
            "class": "rule", "x1": _n(at), "x2": _n(at), "y1": _n(y), "y2": _n(y + 5),
        })  # fmt: skip
        half = 3.4 * max(len(part) for part in label[:rows])
        if at - half < free:
            continue
        free = at + half + 4
        for row in range(rows):
            _text(root, at, y + 19 + 16 * row, label[row], ("ink", "soft")[row], "middle")
    y += 16 * rows + 22
    _text(root, (LEFT + WIDTH - RIGHT) / 2, y, axis.titles[0] + (
        ", logarithmic" if place.log else ""), "ink", "middle")  # fmt: skip
    if rows == 2:
        y += 16
        _text(root, (LEFT + WIDTH - RIGHT) / 2, y, axis.titles[1], "soft", "middle")
    return y + 14


def _ticks(highest: float, steps: int) -> list[float]:
    """0 to at least the highest value, in about so many round steps."""
    if highest <= 0:
        return [0, 1]
    rough = highest / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    return [step * k for k in range(math.ceil(highest / step * 0.999) + 1)]


def _number(value: float) -> str:
    return short(round(value)) if value >= 1000 else f"{value:.3g}"


def _wrapped(note: str) -> list[str]:
    lines = [""]
    for word in note.split():
        if len(lines[-1]) + len(word) >= WRAP:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _text(
    root: ElementTree.Element, x: float, y: float, words: str, style: str, anchor: str = "start"
) -> None:
    ElementTree.SubElement(
        root, "text", {"x": _n(x), "y": _n(y), "class": style, "text-anchor": anchor}
    ).text = words


def _n(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def _style() -> str:
    """Without variables: not every viewer knows them."""
    def rules(shade: int) -> str:
        named = [f".{name}{{{p}:{(light, dark)[shade]}}}"
                 for name, (p, light, dark) in _STYLES.items()]  # fmt: skip
        # Around the picture, too, where it is shown alone.
        named.append(f":root{{background:{_STYLES['paper'][1 + shade]}}}")
        for k, pair in enumerate(COLOURS):
            named.append(f".c{k}{{stroke:{pair[shade]}}}.d{k}{{fill:{pair[shade]}}}")
        return "".join(named)

    return (
        "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif}"
        ".head{font-size:17px;font-weight:650}.strong{font-weight:620;font-size:13px}"
        ".line{fill:none;stroke-width:2;stroke-linejoin:round}"
        ".limit{stroke-width:1.5;stroke-dasharray:5 4}"
        f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}"
    )
