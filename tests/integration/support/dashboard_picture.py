"""A Grafana dashboard's panels with what a Prometheus answers to their queries, as one picture.

Grafana's own drawing it is not: places, units and legends are those of the dashboard's file, lines are plain.
"""
import json
import math
import re
import urllib.parse
import urllib.request
from html import escape

COLUMN, ROW, PAD = 46, 24, 4  # of Grafana's grid of 24 columns, in pixels
COLORS = ["#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"]
MOST_IN_LEGEND = 4


class Prometheus:
    """Answers of one, for the span from `begin` to `end` in steps of `step` seconds."""

    def __init__(self, url, begin, end, step, interval):
        self.url, self.begin, self.end, self.step = url, begin, end, step
        self.variables = {"$__rate_interval": f"{math.ceil(interval)}s", "$instance": ".*", "$tenant": ".*"}

    def ask(self, path, **words):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(words)}", timeout=30) as answer:
            return json.load(answer)["data"]["result"]

    def query(self, expression):
        for name, value in self.variables.items():
            expression = expression.replace(name, value)
        if "$" in re.sub(r'"[^"]*"', "", expression):
            raise ValueError(f"a variable that is not known here: {expression}")
        return expression

    def series(self, expression):
        """[(labels, [(time, value)])]"""
        result = self.ask("query_range", query=self.query(expression), start=self.begin, end=self.end, step=self.step)
        return [(one["metric"], [(time, float(value)) for time, value in one["values"] if math.isfinite(float(value))])
                for one in result]


def in_unit(value, unit):
    """As Grafana would write it."""
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for least, factor, name in ((1, 1, "s"), (1e-3, 1e3, "ms"), (0, 1e6, "µs")):
            if abs(value) >= least:
                return f"{value * factor:.3g} {name}"
    suffix = {"bytes": "B", "Bps": "B/s", "ops": "/s"}.get(unit, "")
    base, names = (1024, ["", "Ki", "Mi", "Gi"]) if unit == "bytes" else (1000, ["", "k", "M", "G"])
    power = min(int(math.log(abs(value), base)) if abs(value) >= 1 else 0, 3)
    return f"{value / base ** power:.3g} {names[power]}{suffix}".strip()


def legend(format_text, labels):
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda name: labels.get(name.group(1), ""), format_text or "") or ", ".join(
        f"{name}={value}" for name, value in sorted(labels.items()) if name != "__name__")


def text(x, y, what, size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" {more}>{escape(what)}</text>'


def stat_of(x, y, width, height, lines, unit):
    values = [points[-1][1] for _, points in lines if points]
    shown = in_unit(values[-1], unit) if values else "No data"
    return [text(x + width / 2, y + height / 2 + 16, shown, 26 if values else 14, 'text-anchor="middle" fill="#4a9d4a"')]


def lines_of(x, y, width, height, lines, unit, span):
    lines = [(name, points) for name, points in lines if points]
    if not lines:
        return [text(x + width / 2, y + height / 2, "No data", 14, 'text-anchor="middle" fill="#999"')]
    left, right, top, bottom = x + 58, x + width - 8, y + 24, y + height - 16 * min(len(lines), MOST_IN_LEGEND + 1) - 6
    highest = max(value for _, points in lines for _, value in points) or 1
    lowest = min(0, *(value for _, points in lines for _, value in points)) if lines else 0
    across = lambda time: left + (time - span[0]) / (span[1] - span[0]) * (right - left)
    up = lambda value: bottom - (value - lowest) / (highest - lowest or 1) * (bottom - top)
    shapes = []
    for i in range(3):
        value = lowest + i * (highest - lowest) / 2
        shapes.append(f'<path d="M{left} {up(value):.1f}H{right}" stroke="#e5e5e5"/>')
        shapes.append(text(left - 4, up(value) + 4, in_unit(value, unit), 10, 'text-anchor="end" fill="#777"'))
    for i, (name, points) in enumerate(lines):
        color = COLORS[i % len(COLORS)]
        path = " ".join(f"{'L' if j else 'M'}{across(time):.1f} {up(value):.1f}" for j, (time, value) in enumerate(points))
        shapes.append(f'<path d="{path}" stroke="{color}" fill="none" stroke-width="1.4"/>')
        if len(points) == 1:
            shapes.append(f'<circle cx="{across(points[0][0]):.1f}" cy="{up(points[0][1]):.1f}" r="2" fill="{color}"/>')
        if i < MOST_IN_LEGEND:
            at = bottom + 16 * (i + 1)
            shapes.append(f'<rect x="{left}" y="{at - 7}" width="10" height="3" fill="{color}"/>')
            shapes.append(text(left + 14, at, f"{name}  {in_unit(points[-1][1], unit)}"[:int(width / 6)], 10))
    if len(lines) > MOST_IN_LEGEND:
        shapes.append(text(left + 14, bottom + 16 * (MOST_IN_LEGEND + 1), f"and {len(lines) - MOST_IN_LEGEND} more", 10))
    return shapes


def svg_of(dashboard, prometheus):
    """The picture, and the titles of panels that had nothing to show."""
    shapes, empty, deepest = [], [], 0
    span = prometheus.begin, prometheus.end
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        x, y, width, height = (place["x"] * COLUMN, place["y"] * ROW, place["w"] * COLUMN, place["h"] * ROW)
        deepest = max(deepest, y + height)
        if panel["type"] == "row":
            shapes.append(text(x + PAD, y + ROW - 8, panel["title"], 14, 'font-weight="bold"'))
            continue
        unit = panel["fieldConfig"]["defaults"].get("unit", "short")
        lines = []
        for target in panel["targets"]:
            lines += [(legend(target.get("legendFormat"), labels), points) for labels, points in prometheus.series(target["expr"])]
        shapes.append(f'<rect x="{x + PAD}" y="{y + PAD}" width="{width - 2 * PAD}" height="{height - 2 * PAD}" fill="#fff" stroke="#d8d8d8"/>')
        shapes.append(text(x + 12, y + 19, panel["title"], 12, 'font-weight="bold"'))
        if panel["type"] == "stat":
            shapes += stat_of(x, y, width, height, lines, unit)
        else:
            shapes += lines_of(x + PAD, y + PAD, width - 2 * PAD, height - 2 * PAD, lines, unit, span)
        if not any(points for _, points in lines):
            empty.append(panel["title"])
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {24 * COLUMN} {deepest + 8}" font-family="sans-serif">\n'
            f'<rect width="100%" height="100%" fill="#f4f5f5"/>\n' + "\n".join(shapes) + "\n</svg>\n"), empty
