"""Planted faults and their correct twins: the simulator must report the one and not the other.

`zoo.py` says what a fault is; the other files hold the kernels, in the order of the kinds of fault
of FACTS.md 10. `tests/test_bugzoo.py` runs them, `on_gpu.py` runs some of them under NVIDIA's
compute-sanitizer.
"""

from . import copies, correct, generic, memory, products, semaphores

KERNELS = (
    correct,
    generic,
    semaphores,
    copies,
    products,
    memory,
)  # importing them fills zoo.ZOO and correct.CORRECT
