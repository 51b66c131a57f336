"""What an exercise is: its texts, what it runs, what is right, and what typical mistakes look like.

Four kinds. Predict: say what will happen, before it does. KernelItem: write or mend a kernel.
Order: put lines in order. OneOf: choose one of several kernels to write. All are data: the
functions in them make inputs and right answers, and nothing here runs a kernel (engine.py does) or
knows a notebook.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PLAIN: tuple[dict[str, Any], ...] = ({},)
"""One run a case, for kernels whose warps share nothing."""
RACES: tuple[dict[str, Any], ...] = (
    {},
    {"schedule": "reverse"},
    {"schedule": "random", "seed": 1},
    {"delay": {0: 40}},
)
"""Warps in several orders, and one that comes late: for kernels with shared memory."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """What all exercises have.

    Attributes:
        id: "K1"; the first letter is the kind (P H M F S K C). topic: names the files, as in
            exercises/K1_swizzle.ipynb. title, minutes, points: as the learner reads them.
        notebook: the lesson it belongs to, by name, without folder and ending.
        hints: where to look, which rule, a worked sibling; given one at a time.
        optional: done only by who is ahead. stem: of another name of its notebook.
    """

    id: str
    topic: str
    title: str
    notebook: str
    minutes: float
    points: int
    hints: tuple[str, str, str]
    optional: bool = False
    stem: str = ""

    @property
    def file(self) -> str:
        """The name of its notebook in exercises/ and solutions/."""
        return f"{self.stem or f'{self.id}_{self.topic}'}.ipynb"

    def scale(self) -> str:
        """What is published about its points."""
        return f"{self.points} points for a right answer."


# ------------------------------------------------------------------------------------------ predict
@dataclass(frozen=True, kw_only=True)
class Question:
    """One question of a Predict item.

    Attributes:
        name: the keyword of tk.predict. text: with {fields} from the parameters.
        truth: computes the right answer from the parameters (by keyword): a whole number, a
            number, or one of `choices`. It asks the simulator or the layout functions.
        choices: the possible answers, where there is a choice. Other answers are numbers.
        wrong: what a misconception is told -> the answer that it leads to, from the parameters.
        why: said when the answer is right: the rule, in a sentence.
        otherwise: said to every other wrong answer.
        within: how far a number may be from the truth, as a fraction of it.
    """

    name: str
    text: str
    truth: Callable[..., Any]
    choices: tuple[str, ...] = ()
    wrong: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    why: str = ""
    otherwise: str = ""
    within: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Predict(Item):
    """Say before it runs. The first answer counts for the points, the newest for passing.

    Attributes:
        params: the parameters of this learner's questions, from a generator with their seed.
        intro: what stands above the questions, with {fields}.
    """

    questions: tuple[Question, ...]
    params: Callable[[np.random.Generator], dict[str, Any]] = lambda rng: {}
    intro: str = ""

    def scale(self) -> str:
        return (
            f"{self.points} points: half for predicting, half by how many of the first answers "
            "were right. Passed when all are right; answer again as often as you like."
        )


# ------------------------------------------------------------------------------------------ kernels
@dataclass(frozen=True)
class Out:
    """An output array of a case. It comes to the kernel full of values that no kernel stores, or
    holding `start`."""

    shape: tuple[int, ...]
    dtype: Any = np.float32
    start: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One launch that the checker makes.

    Attributes:
        says: what it is, for messages: "3 x 5 numbers".
        grid: as in kernel[grid]. args: parameter -> array, number or Out, in the kernel's order.
        consts: compile-time parameters. kernel: which one, where the learner writes several.
        seen: the learner may be shown its numbers; False for the cases of grading.
    """

    says: str
    grid: Any
    args: dict[str, Any]
    consts: dict[str, Any] = field(default_factory=dict)
    kernel: str = ""
    seen: bool = True

    def inputs(self) -> dict[str, Any]:
        """The arguments that are not outputs, by name, and what outputs start from."""
        own = {n: a for n, a in self.args.items() if not isinstance(a, Out)}
        starts = {n: a.start for n, a in self.args.items() if isinstance(a, Out)}
        return {**own, **{n: a for n, a in starts.items() if a is not None}, **self.consts}


@dataclass(frozen=True)
class Facts:
    """What is known of an answer without comparing numbers.

    Attributes:
        calls: how often each name is called in the kernel and its helpers: "block.sync" -> 2.
        text: their source without comments. total: the counters of all plain runs, summed.
        shared_bytes: shared memory of a block. warps: of a block.
    """

    calls: Counter[str]
    text: str
    total: Counter[str] = field(default_factory=Counter)
    shared_bytes: int = 0
    warps: int = 0


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """A misconception and how it shows. Every condition that is given must hold.

    Attributes:
        says: what the learner is told: what they seem to think, and why it is not so.
        gives: the output it leads to (several: a dict), from the inputs by keyword.
        error: the codes of errors it leads to: "TK500 TK501".
        when: any other sign, from the Facts. costs: only where the results are right, but cost too
            much or break a rule.
    """

    says: str
    gives: Callable[..., Any] | None = None
    error: str = ""
    when: Callable[[Facts], bool] | None = None
    costs: bool = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """A published scale on counted work, which no machine's speed can change.

    Attributes:
        says: what is counted, in words. metrics: keys of report.METRICS, added up.
        ideal: how much a case needs at least. full, zero: multiples of it for all points and none;
            between them the points fall evenly. Counts and ideals of all cases are added up.
    """

    says: str
    metrics: tuple[str, ...]
    ideal: Callable[[Case], float]
    full: float
    zero: float

    def share(self, ratio: float) -> float:
        """1 at `full`, 0 at `zero`."""
        return min(1.0, max(0.0, (self.zero - ratio) / (self.zero - self.full)))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Something that must hold for a right answer, beside its results."""

    says: str
    holds: Callable[[Facts], bool]


@dataclass(frozen=True, kw_only=True)
class KernelItem(Item):
    """A kernel to write, change or mend.

    Attributes:
        kernels: the names the learner's kernels must have.
        case: makes a launch from a generator and one of the sizes.
        sizes: what the page checks; hidden: what grading checks besides.
        expected: the right output (several: a dict) in float64, from the inputs by keyword.
        tolerance: absolute, or computed from the inputs by keyword; 0 for copies.
        wrong: the misconceptions, the likeliest first.
        work: scales on counted work. rules: what else must hold.
        runs: simulator options (PLAIN, RACES); each case is run with the first and with one of
            the others in turn.
        steps: loop iterations that a warp may make in one run.
        own_words: codes of errors whose own hint leads away from what is asked for: it is left out
            where a misconception says what is wrong.
    """

    kernels: tuple[str, ...]
    case: Callable[[np.random.Generator, Any], Case]
    sizes: tuple[Any, ...]
    hidden: tuple[Any, ...]
    expected: Callable[..., Any]
    tolerance: float | Callable[..., Any] = 0.0
    wrong: tuple[Wrong, ...] = ()
    work: tuple[Work, ...] = ()
    rules: tuple[Rule, ...] = ()
    runs: tuple[dict[str, Any], ...] = PLAIN
    steps: int = 20_000
    own_words: tuple[str, ...] = ()

    def scale(self) -> str:
        needs = "every result is right and no run has a fault"
        parts = [f"{self.points} points when {needs}; otherwise none."]
        if not self.points:
            parts = [f"It gives no points; it is passed when {needs}."]
        parts += [f"It must hold, too: {r.says}." for r in self.rules]
        for w in self.work:
            most = "the least" if w.full == 1 else f"up to {w.full:g} times the least"
            parts.append(
                f"What is counted: {w.says}. All points for {most} that is needed, none from "
                f"{w.zero:g} times, evenly between."
            )
        return " ".join(parts)


# -------------------------------------------------------------------------------------------- order
@dataclass(frozen=True)
class Line:
    """A line to be put in order; `not_here` says why it belongs nowhere (a distractor)."""

    id: str
    text: str
    not_here: str = ""


@dataclass(frozen=True, kw_only=True)
class Order(KernelItem):
    """Lines to put in order: `order = ["b", "e", ...]`. Any order that works counts.

    Attributes:
        head, tail: the kernel's text before and after. lines: with their indentation.
    """

    head: str
    lines: tuple[Line, ...]
    tail: str = ""

    def text(self, order: list[str]) -> str:
        """The kernel that an order makes."""
        by = {x.id: x.text for x in self.lines}
        return "\n".join([self.head.strip("\n"), *(by[i] for i in order), self.tail.strip("\n")])


@dataclass(frozen=True, kw_only=True)
class OneOf(Item):
    """One of several kernels, as the learner chooses; the first that is there is judged."""

    choices: tuple[KernelItem, ...]

    def scale(self) -> str:
        return " ".join(f"{c.kernels[0]}: {c.scale()}" for c in self.choices)
