"""Figures of what ran. Draws from reports and layouts only; nothing else imports it."""

from tklearn.viz.lines import lines

__all__ = ["lines"]
