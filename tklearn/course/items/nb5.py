"""NB5, asynchronous pipelines."""

from __future__ import annotations

from tklearn.course.item import Item

ITEMS: tuple[Item, ...] = ()
