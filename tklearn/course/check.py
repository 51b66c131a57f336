"""tk.check, tk.hint and tk.predict: the exercises, in the page.

This file finds the learner's answer (a kernel or an order by its name in the calling cell), has it
judged by a process of its own (worker.py), keeps the attempt (attempts.py) and shows the verdict.
"""

from __future__ import annotations

import ast
import difflib
import html
import json
import sys
from dataclasses import replace
from typing import Any

from tklearn.course import attempts, engine, extract, release, worker
from tklearn.course.extract import Answer
from tklearn.course.item import Item, KernelItem, OneOf, Order, Predict
from tklearn.course.items import ITEMS, LESSONS
from tklearn.course.verdict import Verdict
from tklearn.kernel import Kernel
from tklearn.lang.errors import TkError

__all__ = ["Verdict", "check", "hint", "predict"]


OUTSIDE = (
    "you are outside the course's folder: this is kept in {}, and tk.submit() does not look there"
)


class Text(str):
    """Text that a notebook shows as it is, without quotes and with its line ends."""

    __slots__ = ()
    __repr__ = str.__str__


def find(name: Any) -> Item:
    """The item of this name. Errors: TkError that says what there is."""
    known = ", ".join(map(repr, ITEMS))
    if isinstance(name, Kernel):
        raise TkError(
            "TK400", "the name of the exercise comes first", hint=f"check(name, my_kernel): {known}"
        )
    if isinstance(name, str) and name in LESSONS:
        return LESSONS[name]
    if not isinstance(name, str) or name not in ITEMS:
        near = [n for n in ITEMS if n.lower() == str(name).strip().lower()]
        near = near or difflib.get_close_matches(str(name), ITEMS, 1)
        said = f"did you mean {near[0]!r}? " if near else ""
        raise TkError("TK110", f"no exercise {name!r}", hint=f"{said}there are {known}")
    return ITEMS[name]


def check(item: str, answer: Any = None) -> Verdict:
    """Checks your answer to an exercise: passed, or why not and where to look.

    Args: item, its name, as "K1". answer: the kernel, or the order of lines; without it, what has
    the name that the exercise asks for is taken. TkError: no such exercise.
    """
    it = find(item)
    frame = sys._getframe(1)
    space = {**frame.f_globals, **frame.f_locals}
    given = answer_of(it, answer, space)
    return _judged(it, given, _older(given, space.get("In")) if answer is None else ())


def _older(given: Answer, cells: Any) -> tuple[str, ...]:
    """What is said where the newest cell with a kernel had an error, so that an older one is there.

    cells: the texts of all cells that were run, as IPython keeps them in `In`.
    """
    if not isinstance(cells, list):
        return ()
    for name, piece in given.pieces.items():
        newest = next((str(c) for c in reversed(cells) if f"def {name}(" in str(c)), piece.text)
        if "".join(piece.text.split()) not in "".join(newest.split()):
            return (f"an older '{name}' was checked: did the newest cell with it end in an error?",)
    return ()


def _judged(it: Item, given: Answer, notes: tuple[str, ...] = ()) -> Verdict:
    """The verdict of the process with limits; written down, if there was something to judge."""
    if given.problem:
        return Verdict(it.id, points=it.points, message=given.problem, tried=False)
    if it.points and attempts.outside():
        notes += (OUTSIDE.format(attempts.folder()),)
    verdict = replace(worker.ask(given, it.points), notes=notes)
    if not verdict.passed and _as_handed_out(it, given):
        if not verdict.message.startswith("not done"):
            notes += ("nothing is filled in yet: this is how it was handed out",)
        return replace(verdict, notes=notes, tried=False)
    facts = {"passed": verdict.passed, "score": verdict.score, "points": verdict.points}
    said = {"message": verdict.message[:2000], "code": verdict.code}
    attempts.add(it.id, "check", **facts, **said, answer=given.text()[: attempts.LONGEST])
    return verdict


def _as_handed_out(it: Item, given: Answer) -> bool:
    """Whether nothing is filled in yet. Not known where the exercise's first text is not here."""
    if isinstance(it, Predict):
        return not given.latest
    if isinstance(it, Order):
        return not given.order
    root = attempts.course()
    text = release.original(it.file, root) if root else None
    if text is None:
        return False
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    first = answer_in(it, extract.from_cells([("", "".join(c["source"])) for c in cells]))
    return not first.problem and _code(first) == _code(given)


def _code(answer: Answer) -> tuple[dict[str, str], dict[str, str]]:
    """What an answer says to Python: comments and empty lines are nothing."""
    return {n: ast.dump(ast.parse(p.text)) for n, p in answer.pieces.items()}, answer.constants


def answer_of(it: Item, given: Any, space: dict[str, Any]) -> Answer:
    """A learner's answer from the names of a page."""
    if isinstance(it, Predict):
        kept = attempts.record(it.id)
        return Answer(it.id, first=kept.first, latest=kept.latest, seed=attempts.seed())
    if isinstance(it, Order):
        order = space.get("order") if given is None else given
        if not isinstance(order, list | tuple) or not all(type(x) is str for x in order):
            return Answer(it.id, problem='the order is a list of names: order = ["a", "b", ...]')
        return Answer(it.id, order=tuple(order))
    if isinstance(it, OneOf):
        names = [c.kernels[0] for c in it.choices]
        wanted = getattr(given, "__name__", None) if given is not None else None
        there = [n for n in names if n == wanted or isinstance(space.get(n), Kernel)]
        if not there:
            return Answer(it.id, problem=_none_of(names))
        name = wanted if wanted in there else there[-1]
        return extract.live(it.id, {name: space.get(name) if given is None else given})
    assert isinstance(it, KernelItem)
    found = {n: space[n] for n in it.kernels if n in space}
    if given is not None:
        if not isinstance(given, Kernel):
            kind = type(given).__name__
            problem = f"give the kernel itself, not {kind}: check({it.id!r}, my_kernel)"
            return Answer(it.id, problem=problem)
        found[it.kernels[0]] = given
    lacking = [n for n in it.kernels if n not in found]
    if lacking:
        problem = f"there is no '{lacking[0]}' here: run its cell, or "
        problem += f"give your kernel too: check({it.id!r}, my_kernel)"
        return Answer(it.id, problem=problem)
    return extract.live(it.id, {n: found[n] for n in it.kernels})


def _none_of(names: list[str]) -> str:
    return f"not done: there is no kernel {', '.join(names[:-1])} or {names[-1]} yet"


def answer_in(it: Item, book: extract.Notebook) -> Answer:
    """A learner's answer from a file, of which nothing is run."""
    if isinstance(it, OneOf):
        names = [c.kernels[0] for c in it.choices]
        there = [n for n in names if isinstance(book.values.get(n), extract.Piece)]
        if not there and not book.broken:
            return Answer(it.id, problem=_none_of(names))
        return book.answer(it.id, tuple(there[-1:] or names[:1]))
    if isinstance(it, KernelItem) and not isinstance(it, Order):
        return book.answer(it.id, it.kernels)
    return book.answer(it.id)


# -------------------------------------------------------------------------------------------- hint
def hint(item: str) -> Text:
    """The next hint: where to look, which rule, a worked sibling. TkError: no such exercise."""
    it = find(item)
    n = min(attempts.record(it.id).hints + 1, len(it.hints))
    attempts.add(it.id, "hint", n=n)
    lines = (f"hint {i + 1} of {len(it.hints)}: {h}" for i, h in enumerate(it.hints[:n]))
    return Text("\n".join(lines))


# ----------------------------------------------------------------------------------------- predict
def _written(choice: str) -> str:
    """A possible answer as it is written in tk.predict: words in quotes."""
    try:
        float(choice)
    except ValueError:
        return repr(choice)
    return choice


class Questions:
    """The questions of a Predict item, or those named, with what was answered so far."""

    def __init__(
        self, item: Predict, params: dict[str, Any], kept: attempts.Record, only: set[str]
    ) -> None:
        self.item, self.kept, self.named = item, kept, bool(only)
        self.intro = item.intro.format(**params)
        asked = [q for q in item.questions if not only or q.name in only]
        self.rows = [(q.name, q.text.format(**params), q.choices) for q in asked]

    def _said(self, name: str) -> str:
        first, latest = self.kept.first.get(name), self.kept.latest.get(name)
        if first is None:
            return "-"
        return str(latest) if first == latest else f"{latest} (first: {first})"

    def _note(self) -> str:
        """What to do, where questions were answered with None."""
        if self.named and not any(n in self.kept.latest for n, _, _ in self.rows):
            return "Nothing is filled in yet: write your predictions in place of None, and run it."
        return ""

    def __str__(self) -> str:
        lines = [self.intro] if self.intro else []
        for name, text, choices in self.rows:
            among = f" [{' | '.join(map(_written, choices))}]" if choices else ""
            lines.append(f"  {name}: {text}{among}   you: {self._said(name)}")
        return "\n".join([*lines, *filter(None, [self._note()])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            style = "text-align:left;white-space:pre-wrap"
            inner = "".join(f'<{tag} style="{style}">{html.escape(c)}</{tag}>' for c in row)
            return f"<tr>{inner}</tr>"

        body = [cells(("", "question", "possible answers", "your prediction"), "th")]
        for name, text, choices in self.rows:
            among = " | ".join(map(_written, choices)) or "a number"
            body.append(cells((name, text, among, self._said(name)), "td"))
        note = f"<p>{self._note()}</p>" if self._note() else ""
        return f"<p>{html.escape(self.intro)}</p><table>{''.join(body)}</table>{note}"


def predict(item: str, **said: Any) -> Questions:
    """Writes down your predictions before you run anything: tk.predict("P3", a=1, b=32).

    The first answer counts for the points. Shows the questions named in the call, or all. Errors:
    TkError for a name that is no question and for an answer that is no possible one.
    """
    it = find(item)
    if not isinstance(it, Predict):
        raise TkError("TK400", f"{item} has nothing to predict", hint=f"write tk.check({item!r})")
    by = {q.name: q for q in it.questions}
    plain: dict[str, Any] = {}
    for name, value in said.items():
        if name not in by:
            raise TkError("TK400", f"{item} has no question {name!r}: {', '.join(by)}")
        if value is None or value is ...:
            continue
        choices = by[name].choices
        if choices:
            match = [c for c in choices if c.lower() == str(value).strip().lower()]
            if not match:
                raise TkError("TK400", f"{name} is one of {', '.join(map(repr, choices))}")
            plain[name] = match[0]
        else:
            try:
                plain[name] = int(value) if float(value) == int(value) else float(value)
            except (TypeError, ValueError, OverflowError):
                raise TkError("TK400", f"{name} is a number, not {value!r}") from None
    if plain:
        attempts.add(it.id, "predict", said=plain)
    worker.start()
    kept = attempts.record(it.id)
    return Questions(it, engine.parameters(it, attempts.seed()), kept, set(said))


def from_file(item: str, book: extract.Notebook) -> Verdict:
    """The verdict on what a file says, in the process with limits; kept as an attempt.

    As if its cells were run in the page: predictions that are not written down yet are, now.
    """
    it = find(item)
    given = replace(answer_in(it, book), seed=attempts.seed())
    if isinstance(it, Predict):
        kept = attempts.record(it.id).latest
        try:
            predict(it.id, **{k: v for k, v in given.latest.items() if kept.get(k) != v})
            given = answer_of(it, None, {})
        except TkError as e:
            given = replace(given, problem=e.message)
    return _judged(it, given, book.notes(given))
