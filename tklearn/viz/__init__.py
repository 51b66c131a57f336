"""Figures of what ran. Draws from reports and layouts only; nothing else imports it."""

from tklearn.viz.banks import banks
from tklearn.viz.coalescing import coalescing
from tklearn.viz.layout import layout
from tklearn.viz.lines import lines
from tklearn.viz.picture import Picture
from tklearn.viz.roofline import roofline
from tklearn.viz.swizzle import swizzle
from tklearn.viz.timeline import Units, timeline

__all__ = [
    "Picture", "Units", "banks", "coalescing", "layout", "lines", "roofline", "swizzle", "timeline",
]  # fmt: skip
