"""All exercises, by their names. How to add one:

1. In the module of its notebook (nb3.py for NB3), write its item and add it to ITEMS there. Copy
   the nearest model: P3 (Predict), M1, F1, K1 (KernelItem), S1 (Order); item.py has the fields.
2. Make the inputs in `case`, the right answer in float64 in `expected`; sizes 1, 2, 3 and no
   multiples of a tile; other ones in `hidden`; RACES as `runs` where warps share memory.
3. For each misconception a Wrong, the likeliest first: the error codes it leads to, or the output
   it gives, or another sign; and `says`: what they seem to think, and why it is not so.
4. Write solutions/<id>_<topic>.ipynb: story, code with each fill-in between `### BEGIN SOLUTION`
   and `### END SOLUTION`, a look at the own run, the check cell (nbgrader metadata as in K1). It
   must run without the fill-ins, and be wrong; a change is a line that is added below the old one.
5. `tklearn release --exercises` makes exercises/ from solutions/.
6. Store tests/course/answers/<id>/right_*.py (three of different structure) and wrong_*.py (five
   and more), the latter beginning with `# words: what|or what` its verdict must say.
7. `python -m pytest -p no:xdist tests/course -k <id>` checks all of it, and makes mutants: those
   that pass and differ need an entry in tests/course/mutants.py, or a better check.
8. `tklearn check <id> FILE` shows what a learner will read. Read it aloud.
"""

from __future__ import annotations

from tklearn.course.item import Item, Predict
from tklearn.course.items import nb0, nb1, nb2, nb3, nb4, nb5, nb6, nb7, quiz

GRADED = (
    "H1", "P1", "M1", "P2", "F1", "F2", "P3", "M2", "K1", "P4", "S1", "K2", "P5", "K3", "F3",
    "S2", "F4", "K4", "K4b", "C1",
)  # fmt: skip
"""The names of the graded exercises, in the order of the course."""

MODULES = (nb0, nb1, nb2, nb3, nb4, nb5, nb6, nb7)
_MADE: dict[str, Item] = {i.id: i for module in MODULES for i in module.ITEMS}
ITEMS: dict[str, Item] = {n: _MADE[n] for n in ("temperature", *GRADED) if n in _MADE}
assert len(ITEMS) == len(_MADE)

LESSONS: dict[str, Predict] = {
    i.id: i for module in (*MODULES, quiz) for i in getattr(module, "LESSON", ())
}
"""Predictions inside the lessons, and the quiz: not graded, without an exercise of their own."""
assert not LESSONS.keys() & ITEMS.keys()
