"""Lane code against a plain Python interpreter: random programs, every lane run by itself."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

HEAD = """
import tklearn as tk
from tklearn import blockIdx, threadIdx


@tk.device
def helper(a, b):
{helper}


@tk.kernel(threads={threads})
def kernel(n: tk.i32, x: tk.gl(tk.i32), y: tk.gl(tk.i32)):
    i = blockIdx.x * {threads} + threadIdx.x
    a = i % 7
    b = n
    c = x[i]
{body}
    y[i] = a * 10000 + b * 100 + c
"""


class Program:
    """Random statements over a, b, c (all kept in 0..96), i, n and x."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.loops = 0
        self.names = 0

    def atom(self, names: str = "abc") -> str:
        return self.r.choice([*names, str(self.r.randint(0, 9)), str(self.r.randint(0, 3))])

    def value(self, names: str = "abc", depth: int = 0) -> str:
        r = self.r
        kind = r.randint(0, 9 if depth < 2 else 3)
        a, b = self.atom(names), self.atom(names)
        if kind < 4:
            return f"({a} {r.choice('+*&|^')} {b})"
        if kind < 6:
            return f"({self.value(names, depth + 1)} {r.choice(['//', '%'])} ({b} + 1))"
        if kind == 6:
            a, b = self.value(names, depth + 1), self.value(names, depth + 1)
            return f"({a} if {self.cond(names)} else {b})"
        if kind == 7:
            return f"{r.choice(['max', 'min'])}({a}, {self.value(names, depth + 1)})"
        if kind == 8 and names == "abc":
            return f"x[({self.value(names, depth + 1)}) % 64]"
        if kind == 9 and names == "abc":
            return f"helper({a}, {b})"
        return a

    def cond(self, names: str = "abc") -> str:
        r = self.r
        one = (
            f"{self.atom(names)} {r.choice(['<', '<=', '==', '!=', '>', '>='])} {self.atom(names)}"
        )
        if r.random() < 0.3:
            # the second operand would fault where the first is false
            a = r.choice(names)
            return f"({one} and {a} != 0 and 12 // {a} > {r.randint(0, 6)})"
        if r.random() < 0.2:
            return f"({one} or {self.atom(names)} < {self.atom(names)})"
        return f"not ({one})" if r.random() < 0.15 else one

    def block(self, pad: str, depth: int, names: str = "abc", ret: str = "return") -> list[str]:
        out = []
        for _ in range(self.r.randint(1, 4)):
            out += self.statement(pad, depth, names, ret)
        return out

    def statement(self, pad: str, depth: int, names: str, ret: str) -> list[str]:
        r, more = self.r, pad + "    "
        kind = r.randint(0, 11)
        if kind < 5 or depth > 3:
            t = r.choice(names)
            if r.random() < 0.3:
                return [f"{pad}{t} += {self.atom(names)}", f"{pad}{t} %= 97"]
            return [f"{pad}{t} = ({self.value(names)}) % 97"]
        if kind < 8:
            out = [f"{pad}if {self.cond(names)}:", *self.block(more, depth + 1, names, ret)]
            if r.random() < 0.3:
                out += [f"{pad}elif {self.cond(names)}:", *self.block(more, depth + 1, names, ret)]
            if r.random() < 0.5:
                out += [f"{pad}else:", *self.block(more, depth + 1, names, ret)]
            return out
        if kind < 10:
            self.names += 1
            v = f"k{self.names}"
            bound = r.choice(
                ["3", "n % 5", f"{r.choice(names)} % 5", "i % 4"]
                if "c" in names
                else ["3", f"{r.choice(names)} % 4"]
            )
            start = r.choice(["0", "0", f"{r.choice(names)} % 2"])
            self.loops += 1
            out = [
                f"{pad}for {v} in range({start}, {bound}):",
                f"{more}{r.choice(names)} = ({self.atom(names)} + {v}) % 97",
                *self.block(more, depth + 1, names, ret),
            ]
            self.loops -= 1
            return out
        if kind == 10:
            self.names += 1
            v = f"w{self.names}"
            self.loops += 1
            out = [
                f"{pad}{v} = {self.atom(names)}",
                f"{pad}while {v} < 6 and {self.cond(names)}:",
                f"{more}{v} += 1",
                *self.block(more, depth + 1, names, ret),
            ]
            self.loops -= 1
            return out
        jumps = (["break", "continue"] if self.loops else []) + [ret]
        j = r.choice(jumps)
        if j == "return" and ret != "return":
            j = ret
        if j == "return":
            return [f"{pad}if {self.cond(names)}:", f"{more}y[i] = a", f"{more}return"]
        return [f"{pad}if {self.cond(names)}:", f"{more}{j}"]


def make(seed: int, threads: int) -> str:
    p = Program(seed)
    helper = [*p.block("    ", 2, "ab", "pass"), "    return b"]
    body = p.block("    ", 0)
    for _ in range(3):
        body += p.block("    ", 0)
    return HEAD.format(helper="\n".join(helper), body="\n".join(body), threads=threads)


def reference(source: str, threads: int, blocks: int, n: int, x: np.ndarray) -> list[int]:
    """Each lane by itself, in Python."""
    marks = {
        "device": lambda f: f,
        "kernel": lambda **_: lambda f: f,
        "i32": int,
        "gl": lambda t: t,
    }
    code = source.replace("import tklearn as tk", "").replace(
        "from tklearn import blockIdx, threadIdx", ""
    )
    code = "from __future__ import annotations\n" + code
    thread, block = SimpleNamespace(x=0), SimpleNamespace(x=0)
    ns = {"tk": SimpleNamespace(**marks), "threadIdx": thread, "blockIdx": block}
    exec(compile(code, "reference", "exec"), ns)
    y = [0] * (threads * blocks)
    xs = x.tolist()
    for block.x in range(blocks):
        for thread.x in range(threads):
            ns["kernel"](n, xs, y)
    return y


def module(path: Path, source: str):
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    mod = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mod)
    return mod


@pytest.mark.parametrize("seed", range(60))
def test_random_lane_programs(tmp_path, seed):
    threads, blocks = (48, 3) if seed % 3 else (32, 4)
    source = make(seed, threads)
    mod = module(tmp_path / f"lanes{seed}.py", source)
    x = np.random.default_rng(seed).integers(0, 97, 64 * 4).astype(np.int32)
    want = reference(source, threads, blocks, seed % 11, x)
    reports = []
    for batch in (True, False):
        y = np.zeros(threads * blocks, np.int32)
        reports.append(mod.kernel.sim[blocks](seed % 11, x, y, batch=batch, check="full"))
        assert y.tolist() == want, source
    assert reports[0].lines == reports[1].lines, source
