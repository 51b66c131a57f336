"""Predicted beside measured, for timing_error.py: errors by launch, and the order of variants."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from timed import Shape, Timed

from tklearn.sim.timing import estimate

CLOSE = 0.05  # measured times that differ by less are in no order
Row = dict[str, Any]


def predict(t: Timed, spec: Any, row: Row, warm: bool) -> Any:
    """The estimate of one launch, at the clock that was measured beside it."""
    grid = t.grid if isinstance(t.grid, tuple) else (t.grid,)
    args = [a.dims if isinstance(a, Shape) else a for a in t.args]
    return estimate(
        spec, (*grid, 1, 1)[:3], args, registers=row["registers"], warm=warm, ghz=row.get("ghz")
    )


def compare(rows: list[Row], launches: list[Timed], spec_of: Callable[[Timed], Any]) -> list[Row]:
    """For each launch that was measured: what the model says of it, and its relative error."""
    by_name = {t.name: t for t in launches}
    code = _registers(rows, by_name)
    out = []
    for row in rows:
        t = by_name.get(row["name"])
        if t is None or "cold" not in row:
            continue
        row = row | {"registers": code[_code(t)]}
        new = {
            "name": row["name"],
            "kernel": t.kernel,
            "shape": t.shape,
            "family": t.family,
            "variant": t.variant,
            "ghz": row["ghz"],
        }
        for way in ("cold", "warm"):
            e = predict(t, spec_of(t), row, way == "warm")
            new |= {way: row[way], f"{way}_model": e.seconds, f"{way}_bound": e.bound}
            new[f"{way}_error"] = e.seconds / row[way] - 1
        new["error"] = new["cold_error"]
        out.append(new)
    return out


def _code(t: Timed) -> Any:
    return id(t.fn), tuple(sorted(t.consts.items()))


def _registers(rows: list[Row], by_name: dict[str, Timed]) -> dict[Any, int | None]:
    """Registers of each kernel as compiled: a launch whose binary came from the disk cache has 0 in
    the file, another launch of the same kernel has the number; None (a guess) if none has."""
    found: dict[Any, int | None] = {}
    for row in rows:
        if row["name"] in by_name:
            key = _code(by_name[row["name"]])
            found[key] = max(found.get(key) or 0, row.get("registers") or 0) or None
    return found


def summary(rows: list[Row]) -> dict[str, Any]:
    """Median errors: of the gallery's kernels (no variants), of each kernel, of variants; and how
    many pairs of variants, measured apart by more than CLOSE, come in the measured order."""
    gallery = [r for r in rows if not r["family"]]
    kernels: dict[str, list[float]] = {}
    for r in gallery:
        kernels.setdefault(r["kernel"], []).append(abs(r["error"]))
    right, pairs, wrong = order(rows)

    def median(xs: list[float]) -> float | None:
        return statistics.median(xs) if xs else None

    return {
        "median": median([abs(r["cold_error"]) for r in gallery]),
        "median_warm": median([abs(r["warm_error"]) for r in gallery]),
        "median_variants": median([abs(r["error"]) for r in rows if r["family"]]),
        "worst": max((abs(r["error"]) for r in gallery), default=None),
        "kernels": {k: statistics.median(v) for k, v in kernels.items()},
        "pairs_right": right,
        "pairs": pairs,
        "wrong": wrong,
    }


def order(rows: list[Row]) -> tuple[int, int, list[str]]:
    """Pairs of variants of one family in the measured order, all pairs, and the wrong ones."""
    families: dict[str, list[Row]] = {}
    for r in rows:
        if r["family"]:
            families.setdefault(r["family"], []).append(r)
    right = pairs = 0
    wrong = []
    for name, found in families.items():
        for i, a in enumerate(found):
            for b in found[i + 1 :]:
                if abs(a["cold"] - b["cold"]) <= CLOSE * min(a["cold"], b["cold"]):
                    continue
                pairs += 1
                same = (a["cold"] < b["cold"]) == (a["cold_model"] < b["cold_model"])
                right += same
                if not same:
                    wrong.append(f"{name}: {a['variant']} and {b['variant']}")
    return right, pairs, wrong


def markdown(rows: list[Row], where: str) -> str:
    """The published table."""
    s = summary(rows)
    lines = [
        "# The time estimate beside measured times",
        "",
        f"{where}. None of these kernels was used to calibrate the model "
        "(benchmarks/calibrate.py has its own): all measured constants are from micro-benchmarks. "
        "The form of the model was revised while these errors were seen, so that kernels unlike "
        "these may be further off. Measured: the median of do_bench, the L2 cache "
        "emptied before each launch; the clock is measured beside it and given to the model. "
        "Made by benchmarks/timing_error.py.",
        "",
        f"Median error {_percent(s['median'])} over {sum(not r['family'] for r in rows)} launches "
        f"of the gallery's kernels, worst {_percent(s['worst'])}; of launches one after the other "
        f"{_percent(s['median_warm'])}; of the variants below {_percent(s['median_variants'])}. "
        f"{s['pairs_right']} of {s['pairs']} pairs of variants that differ by more than "
        f"{100 * CLOSE:.0f} % come in the measured order"
        + (f" (not: {'; '.join(s['wrong'])})." if s["wrong"] else "."),
        "",
        "| kernel | shape | measured us | estimate us | error | busiest | warm, measured | error |",
        "|---|---|---:|---:|---:|---|---:|---:|",
    ]
    lines += [_line(r, r["kernel"], r["shape"]) for r in rows if not r["family"]]
    lines += [
        "",
        "| variants of | variant | measured us | estimate us | error | busiest | warm | error |",
        "|---|---|---:|---:|---:|---|---:|---:|",
    ]
    lines += [_line(r, f"{r['family']} ({r['shape']})", r["variant"]) for r in rows if r["family"]]
    return "\n".join(lines) + "\n"


def _line(r: Row, first: str, second: str) -> str:
    return (
        f"| {first} | {second} | {r['cold'] * 1e6:.1f} | {r['cold_model'] * 1e6:.1f} | "
        f"{100 * r['cold_error']:+.0f} % | {r['cold_bound']} | {r['warm'] * 1e6:.1f} | "
        f"{100 * r['warm_error']:+.0f} % |"
    )


def _percent(x: float | None) -> str:
    return "-" if x is None else f"{100 * x:.1f} %"
