"""One submission: read in a sandbox, run in a sandbox, judged outside.

`Grader.grade` takes a submission's bytes and returns a result as plain data. The sandbox's answers
are taken as what they are, data from where a learner's code may have run: shapes, types and names
are checked before a number is compared. Hidden tests are run with the grader's seed, and what is
said of them names neither a shape nor a number. This file knows no folder and no class.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tklearn.course import engine, sandbox, submit
from tklearn.course.extract import Answer, Piece
from tklearn.course.inside import packed_case
from tklearn.course.item import Case, Item, KernelItem, OneOf, Out, Predict
from tklearn.course.items import ITEMS
from tklearn.course.plain import pack
from tklearn.course.sandbox import Broken, Limits, Sandbox, Stopped
from tklearn.course.verdict import Verdict

HIDDEN_SECONDS = 12.0  # of processor time for one exercise; the slowest right answer takes two
PUBLIC_SECONDS = 6.0
VALUES = Limits(cpu=5, wall=60.0, reply=4 << 20)
LONGEST = 4_000  # characters of a message
RULES = 2  # another number where other rules give other grades: kept results are made again


@dataclass(frozen=True)
class Settings:
    """What decides a grade beside the submission.

    Attributes: seed: of the inputs of grading. secret: of the class, from which each learner's
    number follows; "" where none was released with one.
    """

    seed: int
    secret: str = ""

    def mark(self) -> str:
        """A short text that differs where grades may."""
        points = [(i.id, i.points) for i in graded()]
        return hashlib.sha256(repr((RULES, self.seed, self.secret, points)).encode()).hexdigest()[
            :16
        ]


def graded() -> list[Item]:
    """The exercises that give points, in the order of the course."""
    return [i for i in ITEMS.values() if i.points]


def learner_seed(secret: str, learner: str) -> int:
    """A learner's number: their questions vary with it, and it shows that a file is theirs."""
    digest = hmac.new(secret.encode(), learner.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8]) >> 12  # 52 bits: exact in JSON everywhere


NOT_GRADED = "not graded, because the sandbox did not work"


def _nothing(data: bytes, name: str) -> dict[str, Any]:
    """A result that says nothing yet."""
    return {
        "name": name, "digest": hashlib.sha256(data).hexdigest(), "learner": "",
        "verified": False, "made": 0.0, "notes": [], "problem": "", "items": {}, "said": {},
    }  # fmt: skip


class Grader:
    """Grades submissions one after the other with a sandbox that stays warm."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._box = Sandbox()
        self._plans: dict[tuple[str, bool], tuple[list[Case], list[dict[str, Any]]]] = {}

    def close(self) -> None:
        self._box.close()

    def grade(self, data: bytes, name: str) -> dict[str, Any]:
        """The result of one submission, whatever it holds. Keys: see feedback.py.

        Where the sandbox itself does not work it is no result: it has the key "broken", too.
        """
        try:
            return self._grade(data, name)
        except Broken as e:
            return {**_nothing(data, name), "problem": f"{NOT_GRADED}: {e}"[:300], "broken": True}

    def _grade(self, data: bytes, name: str) -> dict[str, Any]:
        """The same. Errors: Broken."""
        out = _nothing(data, name)
        if len(data) > submit.LARGEST:
            return {**out, "problem": f"larger than {submit.LARGEST // 1_000_000} MB"}
        request = {"do": "read", "data": base64.b64encode(data).decode(), "name": name}
        try:
            said = self._patiently(request)
        except Stopped as e:
            return {**out, "problem": f"it could not be read: {e}"}
        if not isinstance(said, dict) or type(said.get("unreadable", "")) is not str:
            return {**out, "problem": "it could not be read"}
        if said.get("unreadable"):
            return {**out, "problem": said["unreadable"][:300]}
        try:
            seed = self._who(said, out)
            answers = self._answers(said, seed)
            records = said["records"]
            effort = {i.id: _effort(records.get(i.id, {})) for i in graded()}
        except (KeyError, TypeError, ValueError, AttributeError):
            return {**out, "problem": "it could not be read: its parts are not what they should be"}
        verdicts = self._verdicts(answers)
        for item in graded():
            v = verdicts[item.id]
            out["items"][item.id] = {
                "passed": v.passed, "score": v.score, "points": item.points,
                "message": v.message[:LONGEST], "code": v.code, "done": item.id in answers,
                "optional": item.optional, "png": v.png, "alt": v.alt, **effort[item.id],
            }  # fmt: skip
            if isinstance(item, Predict) and item.id in answers:
                out["said"][item.id] = answers[item.id].first
        return out

    def _patiently(self, request: dict[str, Any]) -> Any:
        """What the sandbox answers; asked again if its process ended. Errors: Stopped, Broken."""
        try:
            return self._box.ask(request)
        except Stopped as e:
            self._box.probe()
            if str(e) != sandbox.ENDED:
                raise
        try:
            return self._box.ask(request)
        except Stopped:
            self._box.probe()
            raise

    # ------------------------------------------------------------------------------ what was said
    def _who(self, said: dict[str, Any], out: dict[str, Any]) -> int:
        """Fills in who handed in; the seed of their questions."""
        learner, seed = str(said["learner"])[:100], int(said["seed"])
        out["made"] = float(said["made"])
        out["notes"] = [str(n)[:200] for n in said["notes"]][:20]
        secret = self.settings.secret
        if not secret:
            out["learner"] = learner
            return seed
        own = learner_seed(secret, learner)
        if learner and hmac.compare_digest(str(own), str(seed)):
            out["learner"], out["verified"] = learner, True
        elif learner or seed:
            out["notes"].append(f"claims to be {learner[:60]!r}, and does not have their number")
        return own if out["verified"] else 0

    def _answers(self, said: dict[str, Any], seed: int) -> dict[str, Answer]:
        """The answers, with the constants that only running tells."""
        found: dict[str, Answer] = {}
        for item in graded():
            part = said["exercises"].get(item.id)
            if part is None:
                continue
            answer = replace(_checked(part["answer"]), item=item.id, seed=seed)
            if answer.missing and part["cells"]:
                answer = self._completed(answer, part["cells"])
            found[item.id] = answer
        return found

    def _completed(self, answer: Answer, cells: list[Any]) -> Answer:
        """An answer with its constants, found in a sandbox of its own."""
        request = {"do": "values", "cells": cells, "names": list(answer.missing)}
        with Sandbox(VALUES) as box:
            try:
                values = box.ask(request)
            except Stopped as e:
                self._box.probe()
                why = f"its cells had to be run, to know {', '.join(answer.missing)[:80]}: {e}"
                return replace(answer, problem=why)
        if not isinstance(values, dict):
            return answer
        known = {n: str(values[n]) for n in answer.missing if n in values}
        if lacking := [n for n in answer.missing if n not in known]:
            why = f"its cells were run, and {', '.join(lacking)[:80]} had no plain value then"
            return replace(answer, problem=why)
        return replace(answer, constants={**answer.constants, **known}, missing=())

    # -------------------------------------------------------------------------------- the verdicts
    def _verdicts(self, answers: dict[str, Answer]) -> dict[str, Verdict]:
        out: dict[str, Verdict] = {}
        kernels: dict[str, tuple[KernelItem, Answer]] = {}
        for item in graded():
            no = Verdict(item.id, points=item.points)
            answer = answers.get(item.id)
            if answer is None:
                out[item.id] = replace(no, message="not handed in")
            elif isinstance(item, Predict):
                out[item.id] = _safe(no, lambda i=item, a=answer: predicted(i, a))
            else:
                own = chosen(item, answer)
                answer = engine.composed(own, answer)
                out[item.id] = replace(no, message=answer.problem)
                if not answer.problem:
                    kernels[item.id] = (own, answer)
        hidden = self._run(kernels, True)
        again: dict[str, tuple[KernelItem, Answer]] = {}
        for name, got in hidden.items():
            item, answer = kernels[name]
            out[name] = self._judged(item, answer, got, True)
            if not out[name].passed and "stopped" not in got:
                again[name] = kernels[name]
        for name, got in self._run(again, False).items():
            item, answer = again[name]
            shown = self._judged(item, answer, got, False)
            if not shown.passed:  # what the page says, too
                kept = min(out[name].score, shown.score)
                out[name] = replace(shown, item=name, score=kept)
        return out

    def _plan(self, item: KernelItem, hidden: bool) -> tuple[list[Case], list[dict[str, Any]]]:
        key = (f"{item.id} {item.kernels[0]}", hidden)
        if key not in self._plans:
            cases = engine.plan(item, self.settings.seed if hidden else 0, hidden)
            self._plans[key] = (cases, [packed_case(c) for c in cases])
        return self._plans[key]

    def _run(
        self, kernels: dict[str, tuple[KernelItem, Answer]], hidden: bool
    ) -> dict[str, dict[str, Any]]:
        """What the sandbox says of each: {"outcomes": ...} or {"stopped": why}."""
        if not kernels:
            return {}
        jobs = [
            {
                "answer": answer.json(), "cases": self._plan(item, hidden)[1],
                "runs": [pack(r) for r in item.runs], "steps": item.steps,
                "seconds": HIDDEN_SECONDS if hidden else PUBLIC_SECONDS,
            }
            for item, answer in kernels.values()
        ]  # fmt: skip
        done = self._ask(jobs)
        if done is None:  # one of them ended the process: each by itself
            done = [(self._ask([j]) or [{"stopped": sandbox.ENDED}])[0] for j in jobs]
        return dict(zip(kernels, done))

    def _ask(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        try:
            done = self._patiently({"do": "run", "jobs": jobs})
        except Stopped as e:
            return [{"stopped": str(e)}] if len(jobs) == 1 else None
        good = isinstance(done, list) and len(done) == len(jobs)
        return done if good and all(isinstance(d, dict) for d in done) else None

    def _judged(
        self, item: KernelItem, answer: Answer, got: dict[str, Any], hidden: bool
    ) -> Verdict:
        """The verdict on what a sandbox returned."""
        no = Verdict(item.id, points=item.points)
        if "outcomes" not in got:
            return replace(no, message=f"not judged: {str(got.get('stopped', 'no answer'))[:300]}")
        cases = self._plan(item, hidden)[0]
        try:
            outcomes = [engine.Outcome.of(o) for o in got["outcomes"]]
            _fits(item, cases, outcomes)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return replace(no, message="not judged: what its run returned is no result")
        return _safe(no, lambda: engine.judge(item, answer, cases, outcomes))


def chosen(item: Item, answer: Answer) -> KernelItem:
    """The kernel to be judged: of a OneOf, that which is there."""
    if isinstance(item, OneOf):
        return next((c for c in item.choices if c.kernels[0] in answer.kernels), item.choices[0])
    assert isinstance(item, KernelItem)
    return item


def predicted(item: Predict, answer: Answer) -> Verdict:
    """The verdict on predictions; what was typed and never run has no first answer."""
    v = engine.judge_predictions(item, answer)
    lacking = [q.name for q in item.questions if q.name not in answer.first]
    if not v.score or not lacking:
        return v
    which = "" if len(lacking) == len(item.questions) else f" of {', '.join(lacking)}"
    why = f"no first answer{which} was recorded: the cell was not run, or no journal came with it"
    return replace(v, message=f"{v.message}\n{why}")


def _safe(no: Verdict, judge: Any) -> Verdict:
    """A verdict; a fault of ours costs one exercise, and says that a person must look."""
    try:
        return judge()
    except Exception as e:  # noqa: BLE001
        text = f"not judged: the grader failed ({type(e).__name__}); your instructor must look"
        return replace(no, message=text, code="grader")


def _fits(item: KernelItem, cases: list[Case], outcomes: list[engine.Outcome]) -> None:
    """Errors: ValueError for outcomes that these cases cannot have."""
    if len(outcomes) > len(cases) or any(o.error is not None for o in outcomes[:-1]):
        raise ValueError
    for n, (case, got) in enumerate(zip(cases, outcomes)):
        if got.error is not None:
            code, text = got.error["code"], got.error["message"]
            if type(code) is not str or type(text) is not str or type(got.error["line"]) is not int:
                raise ValueError
        elif len(got.outputs) != len(engine.chosen(item.runs, n)):
            raise ValueError
        wanted = {n: a for n, a in case.args.items() if isinstance(a, Out)}
        for arrays in (*got.outputs, *(a for _, a in got.lucky)):
            if set(arrays) != set(wanted):
                raise ValueError
            for name, a in arrays.items():
                like = wanted[name]
                if a.shape != tuple(like.shape) or a.dtype != np.dtype(like.dtype):
                    raise ValueError
        numbers = (*got.total.values(), got.shared_bytes, got.warps)
        if not all(type(v) in (int, float) and 0 <= v < 1e18 for v in numbers):
            raise ValueError
        if not all(type(c) is str and c in case.args for c in got.changed):
            raise ValueError


def _effort(record: Any) -> dict[str, int]:
    return {n: min(int(record.get(n, 0)), 9999) for n in ("attempts", "hints")}


def _checked(data: Any) -> Answer:
    """An answer from a sandbox. Errors: TypeError, KeyError, ValueError, AttributeError."""
    a = Answer.of(data)
    texts: list[Any] = [a.problem, *a.kernels, *a.kernels.values(), *a.missing, *(a.order or ())]
    texts += [*a.constants, *a.constants.values(), *a.imports, *a.imports.values(), *a.pieces]
    for p in a.pieces.values():
        assert isinstance(p, Piece)
        texts += [p.name, p.kind, p.text, p.cell, *p.names]
        if type(p.line) is not int or not 0 <= p.line < 1_000_000:
            raise ValueError
    if not all(type(t) is str for t in texts):
        raise ValueError
    first, latest = ({n: v for n, v in d.items() if submit.sane(v)} for d in (a.first, a.latest))
    latest = {**first, **latest}
    return replace(a, first=first, latest=latest, problem=a.problem[:1000])
