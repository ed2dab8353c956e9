"""A trace as tallyctl writes it, as a picture: trace_picture.py TRACE BEGIN_MS END_MS > docs/tallyctl-trace.svg"""
import sys
from html import escape

from chrome_trace import ChromeTrace

WIDTH, LEFT, ROW, PER_ROW = 1000, 190, 16, 18
COLORS = {"held: high-priority work": "#e6a23c", "held: others' turn": "#f3d19e", "request": "#b3d8ff", "descheduled": "#dddddd"}


def svg_of(trace, begin, end):
    at = lambda us: LEFT + (us / 1000 - begin) / (end - begin) * (WIDTH - LEFT)
    places, shapes, texts, y = {}, [], [], 30
    for pid, name in sorted(trace.processes.items(), key=lambda item: ("(high" not in item[1], item[0])):
        threads = [key for key in sorted(trace.threads) if key[0] == pid and trace.slices.get(key)]
        if not threads:
            continue
        texts.append(f'<text x="4" y="{y + 12}" font-weight="bold">{escape(name)}</text>')
        y += PER_ROW
        for key in threads:
            places[key] = y
            texts.append(f'<text x="14" y="{y + 12}">{escape(trace.threads[key])}</text>')
            y += PER_ROW
        y += 8
    for key, top in places.items():
        on_gpu = trace.threads[key].endswith("on the GPU")
        for one in sorted(trace.slices[key], key=lambda one: (one["ts"], -one["dur"])):
            left, right = max(at(one["ts"]), LEFT), min(at(one["ts"] + one["dur"]), WIDTH)
            if right <= left:
                continue
            color = COLORS.get(one["name"], "#67a867" if on_gpu else "#d0e8d0")
            inset = 4 if one["name"].startswith("held") else 0
            shapes.append(f'<rect x="{left:.1f}" y="{top + inset}" width="{max(right - left, 0.6):.1f}" height="{ROW - 2 * inset}" '
                          f'fill="{color}"><title>{escape(one["name"])}</title></rect>')
            if right - left > 7 * len(one["name"]):
                shapes.append(f'<text x="{left + 3:.1f}" y="{top + 12}" font-size="10">{escape(one["name"])}</text>')
    for ends in trace.flows.values():
        (x1, y1), (x2, y2) = [(at(ends[kind]["ts"]), places[ends[kind]["pid"], ends[kind]["tid"]]) for kind in "sf"]
        if LEFT <= x1 and x2 <= WIDTH:
            shapes.append(f'<path d="M{x1:.1f} {y1 + ROW}L{x2:.1f} {y2}" stroke="#555" stroke-width="0.6" fill="none"/>')
    for i in range(11):
        x = LEFT + i * (WIDTH - LEFT) / 10
        texts.append(f'<path d="M{x:.0f} 20V{y}" stroke="#eee"/><text x="{x:.0f}" y="15" fill="#777">'
                     f"{begin + i * (end - begin) / 10:.1f} ms</text>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 40} {y + 4}" font-family="sans-serif" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(texts + shapes) + "\n</svg>\n")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="ascii") as file:
        sys.stdout.write(svg_of(ChromeTrace(file.read()), float(sys.argv[2]), float(sys.argv[3])))
