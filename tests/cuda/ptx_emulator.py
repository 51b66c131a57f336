"""Runs the PTX of a small kernel on the CPU, so that the header library's values are tested on
machines without a GPU.

This file knows the PTX instructions that NVRTC makes of the kernels in `header_cases.py`, one block
at a time: all threads are a NumPy axis, and the threads at the smallest program counter step
together. It checks alignment and bounds of every access. It knows nothing of speed, races, caches
or the exact bits of approximate functions and of tensor-core sums.
"""
# ruff: noqa: E501

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

GLOBAL = 1 << 32  # addresses of global memory start here; shared and local ones at 0
U64, F32 = np.uint64, np.float32
UNSIGNED = {1: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
SMALL = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


class Instruction(NamedTuple):
    predicate: str
    negated: bool
    op: str
    args: list[str]
    text: str


class Kernel(NamedTuple):
    code: list[Instruction]
    labels: dict[str, int]


class Fault(Exception):
    """A misaligned or out-of-bounds access, or an instruction this file does not know."""


def parse(ptx: str) -> dict[str, Kernel]:
    """All kernels of a PTX text, by name."""
    kernels = {}
    for name, body in re.findall(r"\.entry\s+(\w+)\s*\(.*?\).*?\{(.*?)\n\}", ptx, re.S):
        code: list[Instruction] = []
        labels = {}
        for line in re.sub(r"//[^\n]*", "", body).split("\n"):
            if label := re.match(r"^\s*(\$\w+):\s*$", line):
                labels[label[1]] = len(code)
                continue
            for text in line.split(";"):
                text = text.strip().lstrip("{}").strip()
                m = re.match(r"^(?:@(!?)(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", text)
                if m:
                    args = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", m[4])
                    code.append(
                        Instruction(m[2] or "", m[1] == "!", m[3], [a.strip() for a in args], text)
                    )
        kernels[name] = Kernel(code, labels)
    return kernels


def _regs(arg: str) -> list[str]:
    return [r.strip() for r in arg.strip("{}").split(",")]


class Block:
    """One thread block. `memory` is global memory (bytes at GLOBAL), changed in place."""

    def __init__(
        self, kernel: Kernel, threads: int, params: list[bytes], memory: np.ndarray, shared: int
    ) -> None:
        self.kernel, self.n, self.params = kernel, threads, params
        self.memory = {
            "global": memory,
            "shared": np.zeros(shared + 1024, np.uint8),
            "local": np.zeros(1024 * threads, np.uint8),
        }
        self.regs: dict[str, np.ndarray] = {}

    # ---- registers: 64-bit words, viewed as the instruction's type

    def word(self, arg: str) -> np.ndarray:
        if arg in self.regs:
            return self.regs[arg]
        if arg.startswith("%"):
            special = {"%tid.x": np.arange(self.n), "%ntid.x": self.n, "%ntid.y": 1, "%ntid.z": 1,
                       "%nctaid.x": 1, "%nctaid.y": 1, "%nctaid.z": 1}.get(arg, 0)  # fmt: skip
            return np.zeros(self.n, U64) + np.asarray(special).astype(U64)
        if re.match(r"0[fd][0-9A-Fa-f]+$", arg):
            return np.full(self.n, int(arg[2:], 16), U64)
        if re.match(r"-?(0x)?[0-9]", arg):
            return np.full(self.n, int(arg, 0) & (2**64 - 1), U64)
        return np.zeros(self.n, U64)  # a symbol: the start of shared or local memory

    def get(self, arg: str, kind: str, bits: int) -> np.ndarray:
        raw = self.word(arg).astype(UNSIGNED[bits])
        if kind == "f":
            return raw.view(F32 if bits == 32 else np.float64)
        return raw.view(SIGNED[bits]) if kind == "s" else raw

    def put(self, arg: str, x: Any, mask: np.ndarray) -> None:
        x = np.asarray(x)
        x = x.astype(U64) if x.dtype == bool else x.view(UNSIGNED[8 * x.itemsize]).astype(U64)
        old = self.regs.get(arg, np.zeros(self.n, U64))
        self.regs[arg] = np.where(mask, x, old)

    # ---- memory

    def address(self, arg: str) -> np.ndarray:
        m = re.match(r"^\[([%\w$]+)\+?(-?\d+)?\]$", arg.replace(" ", ""))
        assert m, arg
        return self.word(m[1]).astype(np.int64) + int(m[2] or 0)

    def place(self, space: str, address: int, size: int, thread: int) -> slice:
        at = address - GLOBAL if space == "global" else address & 0xFFFFFFFF
        if space == "local":
            at += 1024 * thread
        if at % size or at < 0 or at + size > len(self.memory[space]):
            raise Fault(f"{size} bytes at {space} offset {at}, thread {thread}")
        return slice(at, at + size)

    def read(self, space: str, address: np.ndarray, size: int, mask: np.ndarray) -> np.ndarray:
        out = np.zeros(self.n, U64)
        for t in np.flatnonzero(mask):
            raw = self.memory[space][self.place(space, int(address[t]), size, t)]
            out[t] = int.from_bytes(raw.tobytes(), "little")
        return out

    def write(
        self, space: str, address: np.ndarray, size: int, x: np.ndarray, mask: np.ndarray
    ) -> None:
        for t in np.flatnonzero(mask):
            raw = int(x[t]).to_bytes(8, "little")[:size]
            self.memory[space][self.place(space, int(address[t]), size, t)] = list(raw)

    def warps(self, mask: np.ndarray) -> list[tuple[slice, np.ndarray]]:
        """The warps of a warp-wide instruction: all their lanes must be here."""
        out = []
        for w in range(0, self.n, 32):
            here = slice(w, w + 32)
            if mask[here].any():
                if not mask[here].all():
                    raise Fault("a warp-wide instruction in divergent code")
                only = np.zeros(self.n, bool)
                only[here] = True
                out.append((here, only))
        return out

    # ---- running

    def run(self, limit: int = 1_000_000) -> None:
        pc, waiting = np.zeros(self.n, np.int64), np.zeros(self.n, bool)
        done = np.zeros(self.n, bool)
        with np.errstate(all="ignore"):
            for _ in range(limit):
                live = ~done & ~waiting
                if done.all():
                    return
                if not live.any():
                    waiting[:] = False
                    continue
                at = pc[live].min()
                here = live & (pc == at)
                i = self.kernel.code[at]
                mask = here
                if i.predicate:
                    mask = here & ((self.word(i.predicate) != 0) != i.negated)
                pc[here] = at + 1
                if i.op.startswith("bra"):
                    pc[mask] = self.kernel.labels[i.args[0]]
                elif i.op == "ret":
                    done |= mask
                elif i.op == "bar.sync":
                    waiting |= mask
                elif mask.any():
                    self.step(i, mask)
        raise Fault("the kernel does not end")

    def step(self, i: Instruction, mask: np.ndarray) -> None:
        parts = i.op.split(".")
        m = re.match(r"([a-z]+)(\d+)$", parts[-1])
        kind, bits = (m[1], int(m[2])) if m else (parts[-1][0], 1)
        method: Callable[..., None] | None = getattr(self, f"op_{parts[0]}", None)
        try:
            if method:
                method(parts, i.args, kind, bits, mask)
            else:
                self.arithmetic(parts, i.args, kind, bits, mask)
        except Fault as e:
            raise Fault(f"{e}: {i.text}") from None

    def op_bar(self, *_: Any) -> None:  # bar.warp.sync: threads meet at the smallest counter anyway
        return

    def op_ld(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        size, regs = bits // 8, _regs(a[0])
        if o[1] == "param":
            p = re.match(r"\[\w*_param_(\d+)(?:\+(\d+))?\]", a[1])
            assert p, a
            for j, r in enumerate(regs):
                at = int(p[2] or 0) + j * size
                raw = self.params[int(p[1])][at : at + size]
                self.put(r, np.full(self.n, int.from_bytes(raw, "little"), U64), m)
            return
        address = self.address(a[1])
        self.aligned(address, size * len(regs), m)
        for j, x in enumerate(
            [self.read(o[1], address + j * size, size, m) for j in range(len(regs))]
        ):
            self.put(regs[j], x, m)

    def op_st(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        size, regs = bits // 8, _regs(a[1])
        address = self.address(a[0])
        self.aligned(address, size * len(regs), m)
        for j, r in enumerate(regs):
            self.write(o[1], address + j * size, size, self.get(r, "u", bits).astype(U64), m)

    def aligned(self, address: np.ndarray, size: int, m: np.ndarray) -> None:
        if (address[m] % size).any():
            raise Fault(f"an access of {size} bytes is not aligned")

    def op_cp(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        if len(a) < 3:
            return  # commit_group, wait_group: the copy is done at once
        to, source, size = self.address(a[0]), self.address(a[1]), int(a[2])
        count = self.get(a[3], "u", 32) if len(a) > 3 else np.full(self.n, size)
        for t in np.flatnonzero(m):
            raw = np.zeros(size, np.uint8)
            where = self.place("global", int(source[t]), size, t)
            raw[: count[t]] = self.memory["global"][where][: count[t]]
            self.memory["shared"][self.place("shared", int(to[t]), size, t)] = raw

    def op_atom(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        self.atomic(o, a[0], a[1:], kind, bits, m)

    def op_red(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        self.atomic(o, None, a, kind, bits, m)

    def atomic(
        self, o: list[str], dst: str | None, a: list[str], kind: str, bits: int, m: np.ndarray
    ) -> None:
        address = self.address(a[0])
        values = [self.get(x, kind, bits) for x in a[1:]]
        for t in np.flatnonzero(m):
            only = np.arange(self.n) == t
            before = self.read(o[1], address, bits // 8, only)
            self.regs["%old"] = before
            old, v = self.get("%old", kind, bits)[t], values[0][t]
            new = _atomic(o[2], old, v, values[-1][t])
            self.put("%new", np.full(self.n, new, values[0].dtype), np.ones(self.n, bool))
            self.write(o[1], address, bits // 8, self.word("%new"), only)
            if dst:
                self.put(dst, before, only)

    # ---- instructions of a whole warp

    def op_shfl(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        self.warps(m)
        x, y, lane = self.word(a[1]), self.word(a[2]).astype(np.int64), np.arange(self.n) % 32
        source = {"bfly": lane ^ y, "idx": y % 32, "up": np.where(lane >= y, lane - y, lane),
                  "down": np.where(lane + y < 32, lane + y, lane)}[o[2]]  # fmt: skip
        self.put(a[0].split("|")[0], x[np.arange(self.n) // 32 * 32 + source], m)

    def op_vote(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        for here, only in self.warps(m):
            p = self.word(a[1])[here] != 0
            x = {"any": p.any(), "all": p.all(), "ballot": int((p * 2 ** np.arange(32)).sum())}[
                o[2]
            ]
            self.put(a[0], np.full(self.n, x).astype(U64), only)

    def op_ldmatrix(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        address, lane = self.address(a[1]), np.arange(32)
        for here, only in self.warps(m):
            for j, r in enumerate(_regs(a[0])):
                rows = address[here][8 * j : 8 * j + 8]
                x = np.stack(
                    [self.memory["shared"][self.place("shared", int(at), 16, 0)] for at in rows]
                )
                x = np.ascontiguousarray(x).view(np.uint16)
                self.put(r, self._fragment(x.T if "trans" in o else x, here, lane), only)

    def op_movmatrix(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        lane = np.arange(32)
        for here, only in self.warps(m):
            x = np.ascontiguousarray(self.get(a[1], "u", 32)[here]).view(np.uint16).reshape(8, 8)
            self.put(a[0], self._fragment(x.T, here, lane), only)

    def _fragment(self, x: np.ndarray, here: slice, lane: np.ndarray) -> np.ndarray:
        out = np.zeros(self.n, U64)
        out[here] = np.ascontiguousarray(x).view(np.uint32).reshape(-1)[lane]
        return out

    def op_mma(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        k = int(o[3].split("k")[1])
        wide = o[-1] == "f32"
        form = o[-3]  # the format of A
        for here, only in self.warps(m):
            lane = np.arange(32)[:, None]
            g, t = lane >> 2, lane & 3
            fa, fb = (self._operand(_regs(x), form, here) for x in a[1:3])
            i, j = np.arange(fa.shape[1])[None], np.arange(fb.shape[1])[None]
            if form == "tf32":
                where = (g + 8 * (i & 1), t + 4 * (i >> 1)), (t + 4 * j, g + 0 * j)
            elif form in ("e4m3", "e5m2"):
                where = ((g + 8 * ((i >> 2) & 1), 4 * t + (i & 3) + 16 * (i >> 3)),
                         (4 * t + (j & 3) + 16 * (j >> 2), g + 0 * j))  # fmt: skip
            else:
                where = ((g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2)),
                         (2 * t + (j & 1) + 8 * (j >> 1), g + 0 * j))  # fmt: skip
            x, y = np.full((16, k), np.nan, F32), np.full((k, 8), np.nan, F32)
            x[where[0]], y[where[1]] = fa, fb
            i = np.arange(4)[None]
            at = g + 8 * (i >> 1), 2 * t + (i & 1)
            dst, acc = _regs(a[0]), _regs(a[3])
            regs = np.stack([self.get(r, "u", 32)[here] for r in acc], 1)
            c = np.empty((16, 8), F32)
            c[at] = regs.view(F32 if wide else np.float16)
            d = self.multiply(x, y, c, form, wide)[at]
            words = d if wide else d.astype(np.float16)
            for q, r in enumerate(dst):
                out = self.get(r, "u", 32).copy()
                out[here] = np.ascontiguousarray(words).view(np.uint32)[:, q]
                self.put(r, out, only)

    def multiply(
        self, x: np.ndarray, y: np.ndarray, c: np.ndarray, form: str, wide: bool
    ) -> np.ndarray:
        """c + x @ y, float32, k in the instruction's order; `wide`: the accumulator is float."""
        return c + x @ y

    def _operand(self, regs: list[str], form: str, here: slice) -> np.ndarray:
        words = np.ascontiguousarray(np.stack([self.get(r, "u", 32)[here] for r in regs], 1))
        if form == "tf32":
            return (words & np.uint32(0xFFFFE000)).view(F32)
        return words.view(SMALL[form]).astype(F32)

    # ---- arithmetic of single threads

    def op_mov(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        if a[1].startswith("{"):
            regs = _regs(a[1])
            w = bits // len(regs)
            x = np.zeros(self.n, U64)
            for i, r in enumerate(regs):
                x |= self.get(r, "u", w).astype(U64) << U64(w * i)
            self.put(a[0], x, m)
        elif a[0].startswith("{"):
            regs = _regs(a[0])
            w = bits // len(regs)
            x = self.word(a[1])
            for i, r in enumerate(regs):
                self.put(r, (x >> U64(w * i)) & U64(2**w - 1), m)
        else:
            self.put(a[0], self.word(a[1]), m)

    def op_cvta(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        self.put(a[0], self.word(a[1]), m)

    def op_setp(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        x, y = self.get(a[1], kind, bits), self.get(a[2], kind, bits)
        compare: dict[str, Callable[[], Any]] = {
            "eq": lambda: x == y, "ne": lambda: x != y, "lt": lambda: x < y, "le": lambda: x <= y,
            "gt": lambda: x > y, "ge": lambda: x >= y, "ltu": lambda: ~(x >= y), "leu": lambda: ~(x > y),
            "gtu": lambda: ~(x <= y), "geu": lambda: ~(x < y), "neu": lambda: x != y,
        }  # fmt: skip
        self.put(a[0], compare[o[1]](), m)

    def op_selp(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        self.put(a[0], np.where(self.word(a[3]) != 0, self.word(a[1]), self.word(a[2])), m)

    def op_cvt(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        to, source = o[-2], o[-1]
        if to.endswith("x2") and source == "f32":
            form = SMALL[to[:-2]]
            w = 8 * np.dtype(form).itemsize
            halves = []
            for x in (self.get(a[2], "f", 32), self.get(a[1], "f", 32)):
                if "satfinite" in o:
                    top = F32(ml_dtypes.finfo(form).max)
                    x = np.clip(x, -top, top)
                halves.append(x.astype(form).view(UNSIGNED[w]).astype(U64))
            self.put(a[0], halves[0] | (halves[1] << U64(w)), m)
        elif source.endswith("x2"):
            x = np.ascontiguousarray(self.get(a[1], "u", 16)).view(SMALL[source[:-2]])
            self.put(a[0], x.astype(np.float16).view(np.uint32), m)
        elif to == "tf32":
            self.put(a[0], (self.get(a[1], "u", 32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000), m)
        elif source in SMALL:
            self.put(a[0], self.get(a[1], "u", 16).view(SMALL[source]).astype(F32), m)
        elif to in SMALL:
            self.put(a[0], self.get(a[1], "f", 32).astype(SMALL[to]).view(np.uint16), m)
        else:
            x = self.get(a[1], source[0], int(source[1:]))
            self.put(a[0], _convert(x, o, to, source), m)

    def arithmetic(self, o: list[str], a: list[str], kind: str, bits: int, m: np.ndarray) -> None:
        c = o[0]
        if kind == "p":
            p = [self.word(x) != 0 for x in a[1:]]
            logic: dict[str, Callable[[], Any]] = {"and": lambda: p[0] & p[1], "or": lambda: p[0] | p[1],
                                                   "xor": lambda: p[0] ^ p[1], "not": lambda: ~p[0]}  # fmt: skip
            self.put(a[0], logic[c](), m)
            return
        if c in ("shl", "shr"):
            x, by = self.get(a[1], kind, bits), self.get(a[2], "u", 32)
            self.put(a[0], x << by.astype(x.dtype) if c == "shl" else x >> by.astype(x.dtype), m)
            return
        if c == "bfi":
            at, length = self.word(a[3]), self.word(a[4])
            field = ((U64(1) << length) - U64(1)) << at
            self.put(a[0], (self.word(a[2]) & ~field) | ((self.word(a[1]) << at) & field), m)
            return
        if c == "prmt":
            both = self.get(a[1], "u", 32).astype(U64) | (
                self.get(a[2], "u", 32).astype(U64) << U64(32)
            )
            x = np.zeros(self.n, U64)
            for i in range(4):
                which = (self.get(a[3], "u", 32).astype(U64) >> U64(4 * i)) & U64(7)
                x |= ((both >> (which * U64(8))) & U64(255)) << U64(8 * i)
            self.put(a[0], x, m)
            return
        v = [self.get(x, kind, bits) for x in a[1:]]
        if "wide" in o:
            wide = (UNSIGNED if kind == "u" else SIGNED)[2 * bits]
            x = v[0].astype(wide) * v[1].astype(wide)
            self.put(a[0], x + self.get(a[3], kind, 2 * bits) if c == "mad" else x, m)
            return
        if "hi" in o:
            self.put(
                a[0], ((v[0].astype(object) * v[1].astype(object)) // 2**bits).astype(v[0].dtype), m
            )
            return
        if c not in _PLAIN:
            raise Fault(f"unknown instruction {'.'.join(o)}")
        self.put(a[0], _PLAIN[c](kind, *v), m)


def _atomic(what: str, old: Any, v: Any, last: Any) -> Any:
    if what == "cas":  # v is what it compares with, last what it stores
        return last if old == v else old
    if what == "exch":
        return v
    return old + v if what == "add" else max(old, v) if what == "max" else min(old, v)


def _convert(x: np.ndarray, o: list[str], to: str, source: str) -> np.ndarray:
    bits = int(to[1:])
    if to[0] == "f":
        return x.astype(F32 if bits == 32 else np.float64)
    if source[0] == "f":
        y = np.trunc(x.astype(np.float64)) if "rzi" in o else np.rint(x.astype(np.float64))
        low, high = (-(2.0**31), 2.0**31 - 1) if to[0] == "s" else (0.0, 2.0**32 - 1)
        y = np.clip(np.nan_to_num(y), low, high)
        return y.astype(np.int64).astype(np.int32 if to[0] == "s" else np.uint32)
    return x.astype(np.int64 if source[0] == "s" else U64).astype(UNSIGNED[bits])


def _divide(kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if kind == "f":
        return x / y
    safe = np.where(y == 0, 1, y).astype(y.dtype)
    return x // safe if kind == "u" else np.trunc(x.astype(np.float64) / safe).astype(x.dtype)


_PLAIN: dict[str, Callable[..., np.ndarray]] = {
    "add": lambda _, x, y: x + y,
    "sub": lambda _, x, y: x - y,
    "mul": lambda _, x, y: x * y,
    "mad": lambda _, x, y, z: x * y + z,
    "fma": lambda _, x, y, z: (x.astype(np.float64) * y + z).astype(F32),
    "and": lambda _, x, y: x & y,
    "or": lambda _, x, y: x | y,
    "xor": lambda _, x, y: x ^ y,
    "not": lambda _, x: ~x,
    "neg": lambda _, x: -x,
    "abs": lambda _, x: np.abs(x),
    "max": lambda kind, x, y: np.fmax(x, y) if kind == "f" else np.maximum(x, y),
    "min": lambda kind, x, y: np.fmin(x, y) if kind == "f" else np.minimum(x, y),
    "div": _divide,
    "rem": lambda _, x, y: np.fmod(x, np.where(y == 0, 1, y)).astype(x.dtype),
    "ex2": lambda _, x: np.exp2(x),
    "lg2": lambda _, x: np.log2(x),
    "sqrt": lambda _, x: np.sqrt(x),
    "rsqrt": lambda _, x: (1 / np.sqrt(x)).astype(F32),
    "rcp": lambda _, x: 1 / x,
    "tanh": lambda _, x: np.tanh(x),
}
