"""NB6, FlashAttention."""

from __future__ import annotations

from tklearn.course.item import Item

ITEMS: tuple[Item, ...] = ()
