"""All exercises, by their names.

How to add one:

1. Write its item in the module of its notebook (nb3.py for NB3), a Predict, KernelItem, Order or
   OneOf (item.py says what the fields mean), and name it in that module's ITEMS. Copy the nearest
   of P3, M1, F1, K1, S1.
2. Write solutions/<id>_<topic>.ipynb: the text, the code with each fill-in between `### BEGIN
   SOLUTION` and `### END SOLUTION`, then a cell `tk.check("<id>")` as the models have it, with
   nbgrader's metadata. What is left without the fill-ins must run and be wrong.
3. `tklearn release --exercises` makes exercises/ from solutions/.
4. Store answers in tests/course/answers/<id>/: right_*.py (three that differ in structure for a
   kernel) and wrong_*.py (five at least), whose first line `# words: ...` says what the message
   must hold (and `# score: 1.5` where a wrong one gets points).
5. Run `pytest tests/course -k <id>`: it checks all of the above, the hints and the mutants; mutants
   that survive because they change nothing that counts are listed in tests/course/mutants.py.
"""

from __future__ import annotations

from tklearn.course.item import Item
from tklearn.course.items import nb0, nb1, nb2, nb3, nb4

GRADED = (
    "H1", "P1", "M1", "P2", "F1", "F2", "P3", "M2", "K1", "P4", "S1", "K2", "P5", "K3", "F3",
    "S2", "F4", "K4", "K4b", "C1",
)  # fmt: skip
"""The names of the graded exercises, in the order of the course."""

_MADE: dict[str, Item] = {i.id: i for module in (nb0, nb1, nb2, nb3, nb4) for i in module.ITEMS}
ITEMS: dict[str, Item] = {n: _MADE[n] for n in ("temperature", *GRADED) if n in _MADE}
assert len(ITEMS) == len(_MADE)
