"""What a picture shows: labels that overlap, and legends that cover a plot."""

import itertools
from typing import Any


def require_readable(figure: Any) -> None:
    """Check that no tick labels overlap, and that no legend covers axes, labels or another legend."""
    figure.canvas.draw()
    axes = [one for one in figure.axes if one.get_visible()]
    for one in axes:
        for axis in (one.xaxis, one.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            labels = [label for tick in ticks for label in (tick.label1, tick.label2) if label.get_visible()]
            boxes = [label.get_window_extent() for label in labels if label.get_text()]
            assert not any(box.overlaps(other) for box, other in itertools.pairwise(boxes)), one.get_title()
    legends = [legend for legend in (*figure.legends, *(one.get_legend() for one in axes)) if legend is not None]
    boxes = [legend.get_window_extent() for legend in legends]
    taken = [part.get_window_extent() for one in axes for part in (one.patch, one.xaxis.label, one.title)]
    taken += [label.get_window_extent() for one in axes for label in one.get_xticklabels()]
    assert not any(box.overlaps(other) for box in boxes for other in taken)
    assert not any(box.overlaps(other) for box, other in itertools.combinations(boxes, 2))
