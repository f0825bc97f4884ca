"""Draw the diagrams of docs/model.md: `python examples/diagrams.py docs/pictures`.

Plain SVG, written by hand: dark on light, so that they can be read wherever they are put; the
site turns them on its dark pages.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

WIDTH = 640
INK, LINE, PAPER = "#1f2933", "#52606d", "#ffffff"
TOKEN, FORWARD, BACKWARD, PLAIN, MIX = (
    ("#e6e1f4", "#5b4b8a"),
    ("#d3ecec", "#0b6e74"),
    ("#fbe6d0", "#b45309"),
    ("#eceff1", "#52606d"),
    ("#fdf0c4", "#8a6d00"),
)
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


class Drawing:
    """Boxes, arrows and words on a sheet."""

    def __init__(self, title: str, height: int) -> None:
        self.title, self.height = title, height
        self.parts: list[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, label: str = "", kind: tuple[str, str] = PLAIN
    ) -> None:
        """Draw a box by its upper left corner."""
        fill, edge = kind
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="5" fill="{fill}" '
            f'stroke="{edge}" stroke-width="1.5"/>'
        )
        lines = label.split("\n") if label else []
        for k, line in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + 5.5 + 19 * (k - (len(lines) - 1) / 2), line)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 15,
        anchor: str = "middle",
        colour: str = INK,
        bold: bool = False,
        italic: bool = False,
    ) -> None:
        """Write words; `_` and braces lower what follows: h_{k,j}."""
        style = (' font-weight="600"' if bold else "") + (' font-style="italic"' if italic else "")
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}"{style}>{_lowered(words)}</text>'
        )

    def arrow(self, *points: tuple[float, float], colour: str = LINE, dashed: bool = False) -> None:
        """Draw an arrow through points; its head is at the last."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.7"{dash}/>'
        )
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        u, v = (x1 - x0) / length, (y1 - y0) / length
        corners = [(x1, y1)] + [(x1 - 8 * u + s * 4 * v, y1 - 8 * v - s * 4 * u) for s in (1, -1)]
        head = " ".join(f"{x:.4g},{y:.4g}" for x, y in corners)
        self.parts.append(f'<polygon points="{head}" fill="{colour}"/>')

    def svg(self) -> str:
        """Give the picture."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
                f'width="{WIDTH}" height="{self.height}" role="img" font-family="{FONT}">',
                f"<title>{escape(self.title)}</title>",
                f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="{PAPER}"/>',
                *self.parts,
                "</svg>",
                "",
            ]
        )


def _lowered(words: str) -> str:
    """Turn h_{k,1} into a lowered k,1."""
    pieces = words.replace("_{", "\0").split("\0")
    text = escape(pieces[0], quote=False)
    for piece in pieces[1:]:
        low, _, rest = piece.partition("}")
        text += f'<tspan font-size="70%" dy="4">{escape(low, quote=False)}</tspan>'
        text += f'<tspan dy="-4">{escape(rest, quote=False)}</tspan>' if rest else ""
    return text


def bilm() -> Drawing:
    """Two language models over one token layer."""
    d = Drawing("Two language models, one reading forward, one backward, over one token layer", 470)
    words = ["the", "bank", "lent"]
    sides = (
        ("forward: the next word", 18, FORWARD, ["bank", "lent", "money"], 1),
        ("backward: the word before", 330, BACKWARD, ["<S>", "the", "bank"], -1),
    )
    for title, left, kind, targets, way in sides:
        columns = [left + 8 + 98 * k for k in range(3)]
        d.text(left + 146, 32, title, size=16, bold=True, colour=kind[1])
        for k, x in enumerate(columns):
            middle = x + 40
            d.text(middle, 66, targets[k], italic=True)
            for top, bottom in ((74, 100), (136, 172), (208, 244), (280, 316), (352, 380)):
                d.arrow((middle, bottom), (middle, top + 2))
            d.box(x, 100, 80, 36, "softmax")
            d.box(x, 172, 80, 36, "LSTM 2", kind)
            d.box(x, 244, 80, 36, "LSTM 1", kind)
            d.box(x, 316, 80, 36, "x_{" + str(k + 1) + "}", TOKEN)
            d.text(middle, 398, words[k], size=16)
        for y in (190, 262):
            for k in range(2):
                a, b = columns[k] + 80, columns[k + 1]
                d.arrow((a, y), (b - 1, y)) if way > 0 else d.arrow((b, y), (a + 1, y))
    d.text(320, 432, "The token layer x and the softmax are the same for both directions;", size=14)
    d.text(320, 452, "the LSTMs have weights of their own.", size=14)
    return d


def token_layer() -> Drawing:
    """From spelling to x."""
    d = Drawing("The token layer: characters, convolutions, maximum, highway, projection", 560)
    spelled = ["⟨", "b", "a", "n", "k", "⟩", "·", "·"]
    for k, sign in enumerate(spelled):
        d.box(84 + 60 * k, 492, 46, 40, sign, TOKEN if k < 6 else PLAIN)
        d.arrow((107 + 60 * k, 492), (107 + 60 * k, 466))
        d.box(84 + 60 * k, 404, 46, 60, "", TOKEN if k < 6 else PLAIN)
    d.text(74, 518, "bytes", size=14, anchor="end")
    d.text(74, 439, "vectors", size=14, anchor="end")
    widths = (("width 1", 84, 46), ("width 2", 204, 106), ("width 3", 384, 166))
    for name, x, w in widths:
        d.box(x - 3, 400, w + 6, 68, "", ("none", FORWARD[1]))
        d.arrow((x + w / 2, 400), (x + w / 2, 366), colour=FORWARD[1])
        d.box(x + w / 2 - 62, 318, 124, 46, f"filters of\n{name}", FORWARD)
        d.arrow((x + w / 2, 318), (x + w / 2, 288), colour=FORWARD[1])
    d.text(588, 346, "…", size=22)
    d.box(60, 240, 520, 46, "maximum over all places, then ReLU: one number a filter")
    d.arrow((320, 240), (320, 212))
    d.box(60, 164, 520, 46, "highway:  g ⊙ ReLU(T x + a) + (1 − g) ⊙ x", MIX)
    d.arrow((320, 164), (320, 136))
    d.box(190, 88, 260, 46, "projection to the LSTMs' size")
    d.arrow((320, 88), (320, 60))
    d.box(270, 18, 100, 40, "x_{k}", TOKEN)
    d.text(386, 43, "the same in every sentence", size=14, anchor="start")
    return d


def lstm() -> Drawing:
    """A step of a projected LSTM."""
    d = Drawing("One step of an LSTM layer with clips, projection and skip connection", 520)
    d.box(60, 452, 200, 42, "input from below", TOKEN)
    d.box(350, 452, 230, 42, "h_{t−1}: output before", FORWARD)
    d.arrow((160, 452), (160, 416))
    d.arrow((465, 452), (465, 416))
    d.box(60, 352, 520, 62, "gates: input, forget, candidate, output\n4 × cells numbers", FORWARD)
    d.arrow((320, 352), (320, 318))
    d.box(170, 254, 300, 62, "cell: forget · c_{t−1} + input · candidate\nclipped to ±3", MIX)
    d.box(20, 264, 84, 42, "c_{t−1}")
    d.arrow((104, 285), (169, 285))
    d.arrow((470, 285), (535, 285))
    d.box(536, 264, 84, 42, "c_{t}")
    d.arrow((320, 254), (320, 220))
    d.box(170, 156, 300, 62, "project output · tanh(c_{t})\ncells → dim, clipped to ±3", FORWARD)
    d.arrow((320, 156), (320, 122))
    d.arrow((470, 187), (578, 187), (578, 232))
    d.text(578, 250, "to step t+1", size=14)
    d.box(300, 80, 40, 40, "+")
    d.arrow((60, 473), (8, 473), (8, 100), (299, 100), dashed=True)
    d.text(20, 92, "skip connection, from layer 2 on", size=14, anchor="start")
    d.arrow((320, 80), (320, 52))
    d.box(220, 12, 200, 38, "output h_{k,j}", FORWARD)
    return d


def mix() -> Drawing:
    """From five vectors to one."""
    d = Drawing("ELMo: the layers of a token, weighted by the task and scaled", 350)
    rows = (
        (212, "layer 0", "x_{k}", "x_{k}", TOKEN, TOKEN, "s_{0}"),
        (132, "layer 1", "→ h_{k,1}", "← h_{k,1}", FORWARD, BACKWARD, "s_{1}"),
        (52, "layer 2", "→ h_{k,2}", "← h_{k,2}", FORWARD, BACKWARD, "s_{2}"),
    )
    for y, name, left, right, a, b, weight in rows:
        d.text(20, y + 29, name, anchor="start")
        d.box(96, y, 110, 46, left, a)
        d.box(206, y, 110, 46, right, b)
        d.arrow((316, y + 23), (351, y + 23))
        d.box(352, y + 2, 52, 42, weight, MIX)
    d.arrow((404, 75), (482, 75), (482, 132))
    d.arrow((404, 155), (459, 155))
    d.arrow((404, 235), (482, 235), (482, 178))
    d.box(460, 133, 44, 44, "Σ")
    d.arrow((504, 155), (539, 155))
    d.box(540, 133, 44, 44, "γ", MIX)
    d.arrow((562, 133), (562, 95))
    d.box(504, 52, 116, 42, "ELMo_{k}", MIX)
    d.text(206, 32, "both directions, side by side", size=14)
    d.text(378, 32, "weights", size=14)
    d.text(
        320, 302, "Without context a token has one vector, x; each of L layers adds two:", size=14
    )
    d.text(320, 324, "2L + 1 in all, five for L = 2.", size=14)
    return d


def state() -> Drawing:
    """What a sentence's vectors depend on."""
    d = Drawing("State carried from batch to batch, and sentences on their own", 330)
    rows = (
        (62, "as published: state is carried from batch to batch", True),
        (204, "elmore: every sentence from the same state", False),
    )
    for y, title, carried in rows:
        d.text(24, y - 24, title, size=16, anchor="start", bold=True)
        for k, name in enumerate(("sentence A", "sentence B", "sentence A")):
            x = 90 + 185 * k
            kind = (FORWARD, BACKWARD, MIX)[k] if carried else (FORWARD, BACKWARD, FORWARD)[k]
            d.box(x, y, 130, 44, name, kind)
            answer = ("vectors 1", "vectors 2", "vectors 3" if carried else "vectors 1")[k]
            d.arrow((x + 65, y + 44), (x + 65, y + 66))
            d.text(x + 65, y + 84, answer, size=14)
            if not carried:
                d.text(x - 26, y + 27, "0", size=16)
            d.arrow((x - 18, y + 22), (x - 1, y + 22)) if not carried or not k else d.arrow(
                (x - 55, y + 22), (x - 1, y + 22)
            )
        if carried:
            d.text(64, y + 27, "0", size=16)
            d.arrow((590, y + 22), (624, y + 22))
    return d


DRAWINGS = {
    "diagram-bilm.svg": bilm,
    "diagram-lstm.svg": lstm,
    "diagram-mix.svg": mix,
    "diagram-state.svg": state,
    "diagram-token-layer.svg": token_layer,
}


def main(arguments: Sequence[str]) -> None:
    """Write all diagrams into a folder."""
    folder = Path(arguments[0] if arguments else ".")
    for name, draw in DRAWINGS.items():
        (folder / name).write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
