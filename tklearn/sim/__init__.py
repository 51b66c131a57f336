"""Machine 1: the simulator. `simulate(kernel, grid, args)` runs a kernel on NumPy arrays."""

from tklearn.sim.machine import Result, simulate

__all__ = ["Result", "simulate"]
