"""What a terminal shows, as an SVG for documents."""
import html

COLUMN, LINE, SIZE = 8.4, 18, 14
COLORS = {"default": "#d8d8d8", "red": "#ff6b68", "green": "#7fc77f", "brown": "#e0c060", "cyan": "#6fc8d8"}
BACKGROUND = "#1c1c1c"


def svg_of(screen):
    """Of a pyte.Screen."""
    width, height = screen.columns * COLUMN + 16, screen.lines * LINE + 16
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="monospace" '
             f'font-size="{SIZE}" xml:space="preserve">', f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>']
    for number in range(screen.lines):
        cells = [screen.buffer[number][column] for column in range(screen.columns)]
        start = 0
        for end in range(1, screen.columns + 1):
            if end < screen.columns and cells[end][1:] == cells[start][1:]:
                continue
            text, look = "".join(cell.data for cell in cells[start:end]), cells[start]
            color = COLORS.get(look.fg, COLORS["default"])
            x, y = 8 + start * COLUMN, 8 + number * LINE
            if look.reverse:
                parts.append(f'<rect x="{x:g}" y="{y}" width="{(end - start) * COLUMN:g}" height="{LINE}" fill="{color}"/>')
                color = BACKGROUND
            if text.strip():
                bold = ' font-weight="bold"' if look.bold else ""
                line = ' text-decoration="underline"' if look.underscore else ""
                parts.append(f'<text x="{x:g}" y="{y + SIZE}" textLength="{(end - start) * COLUMN:g}" fill="{color}"{bold}{line}>'
                             f'{html.escape(text)}</text>')
            start = end
    return "\n".join([*parts, "</svg>"]) + "\n"
