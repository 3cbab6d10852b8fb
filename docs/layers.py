"""Draw the packages of the code in layers, from their imports: ``python -m docs.layers`` in the root folder.

A box is a folder, or a module beside the folders. Modules that import no box are drawn as one, ``base``. A box stands
above every box that it imports. A line leads to each of these that no path through other boxes leads to.
"""

from __future__ import annotations

from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

from tests.test_architecture import MODULES, below, imported_modules

PICTURE = Path(__file__).parent / "_static" / "layers.svg"
BASE, API = "base", "ragembed.indexes"
BOX, ROW, GAP, CHARACTER, WIDTH = 26, 58, 16, 7.9, 1100
STYLE = (
    "rect{fill:#eef2fa;stroke:#5b76b8}path{fill:none;stroke:#9aa6c4}"
    "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1b2440;text-anchor:middle}"
    "@media(prefers-color-scheme:dark){rect{fill:#26304a;stroke:#8ba3e0}text{fill:#e8ecf6}path{stroke:#6f7ea6}}"
)

Graph = dict[str, set[str]]


def imported_boxes() -> Graph:
    """Return each box with the boxes that it imports at run time."""
    folders = {name for name, file in MODULES.items() if file.name == "__init__.py"} - {"ragembed", API}

    def box(name: str) -> str:
        return min((folder for folder in folders if below(name, folder)), key=len, default=name)

    graph: Graph = {}
    for name in MODULES.keys() - {"ragembed"}:  # which names what it offers, and imports nothing before its use
        graph.setdefault(box(name), set()).update({box(used) for used in imported_modules(name) - {"ragembed"}})
    graph = {name: used - {name} for name, used in sorted(graph.items())}
    low: set[str] = set()
    for name in TopologicalSorter(graph).static_order():
        if name not in folders and graph[name] <= low:
            low.add(name)
    merged = {name: {BASE if other in low else other for other in used} for name, used in graph.items()}
    return {BASE: set(), **{name: used for name, used in merged.items() if name not in low}}


def draw(graph: Graph) -> str:
    """Return the drawing as SVG."""
    order = list(TopologicalSorter({name: sorted(used) for name, used in sorted(graph.items())}).static_order())
    reached: Graph = {}
    for name in order:
        reached[name] = graph[name].union(*(reached[used] for used in graph[name]))
    direct = {name: graph[name].difference(*(reached[used] for used in graph[name])) for name in order}
    level: dict[str, int] = {}
    for name in order:
        level[name] = max((level[used] + 1 for used in graph[name]), default=0)
    top = max(level.values())
    centre: dict[str, float] = {}
    boxes: list[str] = []
    for number in range(top + 1):
        row = [name for name in order if level[name] == number]
        row.sort(key=lambda name: (sum(centre[used] for used in direct[name]) / max(1, len(direct[name])), name))
        sizes = [len(_label(name)) * CHARACTER + GAP for name in row]
        left = (WIDTH - sum(sizes) - GAP * (len(row) - 1)) / 2
        edge = (top - number) * ROW
        for name, size in zip(row, sizes, strict=True):
            centre[name] = left + size / 2
            boxes.append(f'<rect x="{left:.0f}" y="{edge}" width="{size:.0f}" height="{BOX}" rx="4"/>')
            boxes.append(f'<text x="{centre[name]:.0f}" y="{edge + 18}">{escape(_label(name))}</text>')
            left += size + GAP
    y = {name: (top - level[name]) * ROW for name in order}
    lines = [
        f'<path d="M{centre[name]:.0f} {y[name] + BOX}L{centre[used]:.0f} {y[used]}"/>'
        for name in order
        for used in sorted(direct[name])
    ]
    size = f"0 -4 {WIDTH} {top * ROW + BOX + 8}"
    body = "\n".join([*lines, *boxes])
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}">\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def _label(name: str) -> str:
    return name.removeprefix("ragembed.") if name != API else "indexes (public names)"


if __name__ == "__main__":
    PICTURE.write_text(draw(imported_boxes()), encoding="utf-8")
