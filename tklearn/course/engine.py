"""Runs an answer and judges it: plan -> execute -> judge.

`plan` makes the launches of an item. `execute` rebuilds the learner's kernels from their text and
runs them: the only step that meets what the learner wrote, fit for a process of its own, with plain
data in and out. `judge` compares what came out with what the checker knows, and finds the words.
Nothing here knows a notebook, a page or a file.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tklearn.course import picture
from tklearn.course.extract import Answer, Piece, Refused, rebuild, value_of, written
from tklearn.course.item import RACES, Case, Facts, Item, KernelItem, OneOf, Order, Out, Predict
from tklearn.course.plain import dtype_of, pack, unpack
from tklearn.course.verdict import Verdict
from tklearn.kernel import Kernel
from tklearn.lang.errors import CODES, TkError

UNSEEN = (
    "on a hidden test, at a size that is not shown: try sizes that are no multiple of the tile or "
    "of the block, and 1, 2 and 3"
)
NOT_IT = ": "  # between a wrong prediction and what is said to it
UNORDERED = ("TK500", "TK501", "TK502")  # races: results may be right by luck
# By size in bytes; as floats they are quiet NaNs, which no operation makes.
POISON = {1: 0xA7, 2: 0x7FE7, 4: 0x7FE7A7A7, 8: 0x7FFFA7A7A7A7A7A7}


@dataclass(frozen=True)
class Outcome:
    """What running one case gave, as plain data.

    Attributes:
        outputs: for each of the item's runs, parameter -> array. total: counters of the first run.
        changed: inputs that the kernel wrote to.
        error: code, message, line and hint of a fault, which ended it; `run` is the options of
        that run. lucky: of a race, (options, outputs) of runs without checks.
        shared_bytes, warps: of the kernel.
    """

    outputs: tuple[dict[str, np.ndarray], ...] = ()
    total: dict[str, int] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    error: dict[str, Any] | None = None
    run: dict[str, Any] = field(default_factory=dict)
    lucky: tuple[tuple[dict[str, Any], dict[str, np.ndarray]], ...] = ()
    shared_bytes: int = 0
    warps: int = 0

    def json(self) -> dict[str, Any]:
        """The same as dictionaries and lists."""
        return {n: pack(getattr(self, n)) for n in self.__dataclass_fields__}

    @staticmethod
    def of(data: dict[str, Any]) -> Outcome:
        """What `json` made. Errors: ValueError, TypeError, KeyError for anything else."""
        d = {n: unpack(data[n]) for n in Outcome.__dataclass_fields__}
        lucky = tuple((o, r) for o, r in d["lucky"])
        return Outcome(**{**d, "outputs": tuple(d["outputs"]), "lucky": lucky,
                          "changed": tuple(d["changed"])})  # fmt: skip


# -------------------------------------------------------------------------------------------- plan
def plan(item: KernelItem, seed: int = 0, hidden: bool = False) -> list[Case]:
    """The launches of an item: its public sizes, with `hidden` those of grading, too."""
    sizes = (*item.sizes, *item.hidden) if hidden else item.sizes
    cases = [item.case(np.random.default_rng([seed, i]), s) for i, s in enumerate(sizes)]
    return [replace(c, seen=not hidden, kernel=c.kernel or item.kernels[0]) for c in cases]


def case_json(case: Case) -> dict[str, Any]:
    """A launch as dictionaries and lists, for a process that executes it."""
    args = {
        n: {"shape": list(a.shape), "dtype": np.dtype(a.dtype).name, "start": pack(a.start)}
        if isinstance(a, Out)
        else {"input": pack(a)}
        for n, a in case.args.items()
    }
    consts = {n: written(v) for n, v in case.consts.items()}
    return {"says": case.says, "grid": pack(case.grid), "args": args, "consts": consts,
            "kernel": case.kernel, "seen": case.seen}  # fmt: skip


def case_of(data: dict[str, Any]) -> Case:
    """What `case_json` made."""
    args: dict[str, Any] = {}
    for n, a in data["args"].items():
        if "input" in a:
            args[n] = unpack(a["input"])
        else:
            args[n] = Out(tuple(a["shape"]), dtype_of(a["dtype"]), unpack(a["start"]))
    grid = unpack(data["grid"])
    grid = tuple(grid) if isinstance(grid, list) else grid
    consts = {n: value_of(v) for n, v in data["consts"].items()}
    return Case(**{**data, "grid": grid, "args": args, "consts": consts})


# ----------------------------------------------------------------------------------------- execute
def execute(
    answer: Answer, cases: list[Case], runs: tuple[dict[str, Any], ...], steps: int
) -> list[Outcome]:
    """Runs the answer's kernels on copies of the cases' arrays; ends at the first fault."""
    try:
        kernels = rebuild(answer)
    except TkError as e:
        return [Outcome(error=_error(e))]
    except Refused as e:
        return [Outcome(error={"code": "", "message": str(e), "line": 0, "hint": ""})]
    done: list[Outcome] = []
    for case in cases:
        done.append(_run(kernels[case.kernel], case, chosen(runs, len(done)), steps))
        if done[-1].error is not None:
            break
    return done


def chosen(runs: tuple[dict[str, Any], ...], n: int) -> tuple[dict[str, Any], ...]:
    """The runs of the n-th case: the first, and one of the others in turn."""
    return (runs[0], runs[1 + n % (len(runs) - 1)]) if len(runs) > 1 else runs


def _error(e: TkError) -> dict[str, Any]:
    line = e.loc.line if e.loc else 0
    return {"code": e.code, "message": str(e), "line": line, "hint": e.hint}


def _run(k: Kernel, case: Case, runs: tuple[dict[str, Any], ...], steps: int) -> Outcome:
    """One case, with each of the options."""
    if list(k.params) != [*case.args, *case.consts]:
        names = ", ".join([*case.args, *case.consts])
        message = f"'{k.__name__}' must have the parameters ({names}), in this order"
        return Outcome(error={"code": "", "message": message, "line": 0, "hint": ""})
    out = Outcome(warps=k.threads[0] * k.threads[1] * k.threads[2] // 32)
    outputs: list[dict[str, np.ndarray]] = []
    for i, options in enumerate(runs):
        args = _arguments(case)
        delay = {w: n for w, n in options.get("delay", {}).items() if w < out.warps}
        options = {**options, **({"delay": delay} if "delay" in options else {})}
        try:
            report = k.sim[case.grid](*args.values(), **case.consts, steps=steps, **options)
        except TkError as e:
            lucky = _without_checks(k, case, steps) if e.code in UNORDERED else ()
            return replace(out, error=_error(e), run=options, lucky=lucky)
        except RecursionError:
            message = "the kernel is nested too deeply"
            return replace(out, error={"code": "", "message": message, "line": 0, "hint": ""})
        changed = tuple(n for n, a in case.args.items() if _differs(a, args[n]))
        outputs.append({n: args[n] for n, a in case.args.items() if isinstance(a, Out)})
        if i == 0:
            spec = k.ir(*args.values(), **case.consts)
            out = replace(out, total=report.total, changed=changed, shared_bytes=spec.shared_bytes)
    return replace(out, outputs=tuple(outputs))


def _without_checks(
    k: Kernel, case: Case, steps: int
) -> tuple[tuple[dict[str, Any], dict[str, np.ndarray]], ...]:
    """What a kernel with a race gives in several orders of its warps when nobody looks."""
    found = []
    for options in (*RACES, {"schedule": "random", "seed": 2}):
        args = _arguments(case)
        warps = k.threads[0] * k.threads[1] * k.threads[2] // 32
        options = {o: v for o, v in options.items() if o != "delay" or warps > 1}
        try:
            k.sim[case.grid](*args.values(), **case.consts, steps=steps, check="off", **options)
        except TkError:
            continue
        found.append((options, {n: args[n] for n, a in case.args.items() if isinstance(a, Out)}))
    return tuple(found)


def _arguments(case: Case) -> dict[str, Any]:
    """Copies of the inputs; outputs full of what no kernel stores."""
    args: dict[str, Any] = {}
    for n, a in case.args.items():
        if isinstance(a, Out):
            args[n] = poisoned(a.shape, a.dtype) if a.start is None else a.start.copy()
        else:
            args[n] = a.copy() if isinstance(a, np.ndarray) else a
    return args


def poisoned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array of one value that no kernel stores: a NaN of its own, or an odd whole number."""
    kind = np.dtype(dtype)
    raw = np.full(shape, POISON[kind.itemsize], f"u{kind.itemsize}")
    return raw.view(kind)


def is_poison(a: np.ndarray) -> np.ndarray:
    """Where an array still holds what it was filled with."""
    return a.view(f"u{a.dtype.itemsize}") == POISON[a.dtype.itemsize]


def _differs(given: Any, now: Any) -> bool:
    return isinstance(given, np.ndarray) and given.tobytes() != now.tobytes()


# ------------------------------------------------------------------------------------------- judge
def examine(item: Item, answer: Answer, seed: int = 0, hidden: bool = False) -> Verdict:
    """Everything in one process: plan, execute, judge. seed, hidden: as grading chooses them."""
    item = part(item, answer)
    if isinstance(item, Predict):
        return judge_predictions(item, answer)
    assert isinstance(item, KernelItem)
    answer = composed(item, answer)
    if answer.problem:
        return Verdict(item.id, points=item.points, message=answer.problem)
    cases = plan(item, seed, hidden)
    return judge(item, answer, cases, execute(answer, cases, item.runs, item.steps))


def part(item: Item, answer: Answer) -> Item:
    """What an answer is judged by: the item, or of a OneOf the choice that was made."""
    if not isinstance(item, OneOf):
        return item
    return next((c for c in item.choices if c.kernels[0] in answer.kernels), item.choices[0])


def composed(item: KernelItem, answer: Answer) -> Answer:
    """For an Order, the answer with the kernel that the lines make; others as they are."""
    if not isinstance(item, Order):
        return answer
    known = [x.id for x in item.lines]
    order = answer.order
    if order is None or not order:
        return replace(answer, problem="not done: order = [...] names no line yet")
    odd = [i for i in order if i not in known]
    if odd or len(set(order)) < len(order):
        what = f"there is no line {odd[0]!r}" if odd else "a line stands twice"
        return replace(answer, problem=f"{what}; the lines are {', '.join(known)}")
    text = item.text(list(order)) + "\n"
    name = item.kernels[0]
    try:
        node = ast.parse(text).body[-1]
    except SyntaxError as e:
        line = text.split("\n")[(e.lineno or 1) - 1].strip()
        return replace(answer, problem=f"this order is no Python: {e.msg} at\n    {line}")
    reads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    piece = Piece(name, "kernel", text, 1, "your order", tuple(reads))
    names = ("tklearn", *_public())
    imports = {n: f"tklearn.{n}" for n in names if n in reads} | {"tk": "tklearn"}
    return replace(answer, kernels={name: name}, pieces={name: piece}, imports=imports)


def _public() -> list[str]:
    import tklearn

    return [n for n in tklearn.__all__ if n not in ("range", "print")]


def judge(item: KernelItem, answer: Answer, cases: list[Case], outcomes: list[Outcome]) -> Verdict:
    """The verdict on what `execute` gave. The first thing that is wrong decides."""
    no = Verdict(item.id, points=item.points)
    sound = all(_sound(item, n, c, o) for n, (c, o) in enumerate(zip(cases, outcomes)))
    if not outcomes or not sound:
        return replace(no, message="the process that ran the kernel gave no sound answer")
    facts = facts_of(answer, outcomes)
    not_here = _distractor(item, answer)
    for n, (case, got) in enumerate(zip(cases, outcomes)):
        if got.error is not None:
            if not case.seen:
                got = replace(got, error=_bare(answer, got.error), lucky=())
            return _fault(item, case, got, facts, replace(no, message=not_here))
        if got.changed:
            where = f"{case.says}: " if case.seen else ""
            said = f"{where}the kernel wrote into its input {', '.join(got.changed)}"
            return replace(no, message=said)
        for options, outputs in zip(chosen(item.runs, n), got.outputs, strict=True):
            verdict = _results(item, case, outputs, facts, no)
            if verdict is not None:
                how = f"\n(with {_said(options)})" if options else ""
                return replace(verdict, message=_joined(not_here, verdict.message + how))
    if len(outcomes) < len(cases):
        return replace(no, message="the check did not come to its end")
    if not_here:
        return replace(no, message=not_here)
    for rule in item.rules:
        if not rule.holds(facts):
            wrong = _misconception(item, facts, None, None, "", right=True)
            return replace(
                no, message=wrong or f"the results are right, but this must hold, too: {rule.says}"
            )
    return _scored(item, cases, outcomes, facts, no)


def _sound(item: KernelItem, n: int, case: Case, got: Outcome) -> bool:
    """Whether an outcome has the form that it must have, wherever it comes from."""
    for outputs in (*got.outputs, *(o for _, o in got.lucky)):
        for name, out in case.args.items():
            a = outputs.get(name) if isinstance(out, Out) else None
            if isinstance(out, Out) and (
                type(a) is not np.ndarray or a.shape != out.shape or a.dtype != np.dtype(out.dtype)
            ):
                return False
    if got.error is not None:
        return {"code", "message", "line", "hint"} <= set(got.error)
    counted = [got.total.get(m) for w in item.work for m in w.metrics]
    return len(got.outputs) == len(chosen(item.runs, n)) and all(
        type(c) is int and c >= 0 for c in counted
    )


def _said(options: dict[str, Any]) -> str:
    """Options of a run in words."""
    if "delay" in options:
        late = ", ".join(map(str, options["delay"]))
        return f"warp {late} coming late"
    return f"the warps in another order: schedule={options.get('schedule', 'rotate')!r}"


def facts_of(answer: Answer, outcomes: list[Outcome]) -> Facts:
    """What is known of an answer beside its results."""
    calls: Counter[str] = Counter()
    texts = []
    for p in answer.pieces.values():
        try:
            tree = ast.parse(p.text)
            text = ast.unparse(tree)
            names = [ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        calls.update(names)
        texts.append(text)
    total: Counter[str] = Counter()
    for o in outcomes:
        total.update(o.total)
    last = outcomes[-1] if outcomes else Outcome()
    return Facts(calls, "\n".join(texts), total, last.shared_bytes, last.warps)


def _distractor(item: KernelItem, answer: Answer) -> str:
    """Why a line of an order belongs nowhere."""
    if not isinstance(item, Order):
        return ""
    used = (x for x in item.lines if x.not_here and x.id in (answer.order or ()))
    return "\n".join(f"line {x.id} does not belong here: {x.not_here}" for x in used)


def _joined(*texts: str) -> str:
    return "\n".join(t for t in texts if t)


def _misconception(
    item: KernelItem, facts: Facts, case: Case | None, outputs: Any, error: str, right: bool = False
) -> str:
    """What the first misconception that fits is told, "" for none."""
    for w in item.wrong:
        if w.costs and not right:
            continue
        if w.error and error not in w.error.split():
            continue
        if bool(error) != bool(w.error) or (w.when is not None and not w.when(facts)):
            continue
        if w.gives is not None:
            if case is None or outputs is None:
                continue
            want = _by_name(w.gives(**case.inputs()), case)
            if not all(_wrong_at(want[n], outputs[n], _loose(item, case)) is None for n in want):
                continue
        if w.gives is None and w.when is None and not w.error:
            continue
        return w.says
    return ""


def _by_name(expected: Any, case: Case) -> dict[str, np.ndarray]:
    if not isinstance(expected, dict):
        name = next(n for n, a in case.args.items() if isinstance(a, Out))
        expected = {name: expected}
    return {n: np.asarray(a, np.float64) for n, a in expected.items()}


def _tolerance(item: KernelItem, case: Case) -> Any:
    return item.tolerance(**case.inputs()) if callable(item.tolerance) else item.tolerance


def _loose(item: KernelItem, case: Case) -> Any:
    """For telling which misconception gave a result: rounding may differ a little more."""
    return np.maximum(_tolerance(item, case), 1e-5)


def _wrong_at(want: np.ndarray, got: np.ndarray, tolerance: Any) -> np.ndarray | None:
    """Where a result is wrong, None where it is right everywhere."""
    with np.errstate(invalid="ignore"):
        numbers = got.astype(np.float64)
        good = (np.abs(numbers - want) <= tolerance) | (numbers == want)
    good |= np.isnan(numbers) & np.isnan(want) & ~is_poison(got)
    return None if good.all() else ~good


def _results(
    item: KernelItem, case: Case, outputs: dict[str, np.ndarray], facts: Facts, no: Verdict
) -> Verdict | None:
    """The verdict on wrong numbers, None if they are right."""
    expected = _by_name(item.expected(**case.inputs()), case)
    for name, want in expected.items():
        got = outputs[name]
        wrong = _wrong_at(want, got, _tolerance(item, case))
        if wrong is None:
            continue
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        left = is_poison(got)
        says = _misconception(item, facts, case, outputs, "")
        if left.all():
            says = says or "nothing was stored into the output"
        elif left[place]:
            says = says or "some elements are never stored"
        if not case.seen:
            return replace(no, message=_joined(says, f"wrong {UNSEEN}"))
        index = f"{name}[{', '.join(map(str, place))}]"
        value = "never stored" if left[place] else f"{float(got[place]):.6g}"
        with np.errstate(over="ignore"):
            right = float(want[place].astype(got.dtype))  # as the output can hold it
        counted = f"{int(wrong.sum())} of {wrong.size} elements are wrong"
        message = f"{case.says}: {counted}, the first is {index}: {value}, should be {right:.6g}"
        png, alt = picture.compare(want, got, wrong, left, name)
        return replace(no, message=_joined(says, message), index=place, png=png, alt=alt)
    return None


def _fault(item: KernelItem, case: Case, got: Outcome, facts: Facts, no: Verdict) -> Verdict:
    """The verdict on a kernel that was stopped."""
    error = got.error or {}
    says = _misconception(item, facts, None, None, error["code"])
    where = f"{case.says}: the kernel was stopped" if error["code"] and case.seen else ""
    if error["code"][:3] in ("TK1", "TK2", "TK3", "TK4"):
        where = "the kernel is not run, because of an error in its text"
    told = error["message"]
    if says and error["code"] in item.own_words:
        told = told.replace(f"\n  hint: {error['hint']}", "")
    message = _joined(no.message, says, where, told, _luck(item, case, got))
    return replace(no, message=message, code=error["code"], line=error["line"])


def _bare(answer: Answer, error: dict[str, Any]) -> dict[str, Any]:
    """A fault on a hidden test without its sizes, indices and numbers: what it is, and where."""
    if not error["code"]:
        return error
    line = error["line"]
    where = f", at line {line}" if line else ""
    own = [p for p in answer.pieces.values() if 0 <= line - p.line < p.text.count("\n")]
    if len(own) == 1:
        where += f":\n    {own[0].text.splitlines()[line - own[0].line].strip()}"
    text = f"{error['code']}: {CODES.get(error['code'], '')}{where}"
    return {**error, "message": f"{text}\nstopped {UNSEEN}"}


def _luck(item: KernelItem, case: Case, got: Outcome) -> str:
    """How often a kernel with a race is right by luck."""
    if not got.lucky:
        return ""
    expected = _by_name(item.expected(**case.inputs()), case)
    tolerance = _tolerance(item, case)
    right = sum(
        all(_wrong_at(want, out[n], tolerance) is None for n, want in expected.items())
        for _, out in got.lucky
    )
    size = f" for {case.says}" if case.seen else ""
    if not right:
        return (
            f"Without checks it gives wrong numbers{size} in all {len(got.lucky)} "
            "orders of its warps that were tried; for other sizes some order may be right."
        )
    return (
        f"Without checks it gives the right numbers{size} in {right} of "
        f"{len(got.lucky)} orders of its warps: that a run was right does not show that there "
        "is no race."
    )


def _scored(
    item: KernelItem, cases: list[Case], outcomes: list[Outcome], facts: Facts, no: Verdict
) -> Verdict:
    """All is right: the points by counted work, which is not told of hidden tests."""
    seen = cases[0].seen
    share = 1.0
    parts: list[tuple[bool, str]] = []
    for w in item.work:
        ideal = sum(w.ideal(c) for c in cases)
        count = sum(o.total.get(m, 0) for o in outcomes for m in w.metrics)
        ratio, most = count / ideal, f"up to {w.full * ideal:,.0f} give all points"
        good = w.share(ratio) >= 1.0
        share = min(share, w.share(ratio))
        much = "" if good else f", {ratio:.2f} times the {ideal:,.0f} needed at least"
        parts.append((good, f"{w.says}: {count:,}{much} ({most})"))
    runs = sum(len(o.outputs) for o in outcomes)
    right = f"right: {', '.join(c.says for c in cases)}; no fault in {runs} runs"
    costs = "the results are right, but they cost too much"
    told = [text for good, text in parts if good == (share >= 1.0)]
    if not seen:
        told = []
        right = f"right, on {len(cases)} tests, hidden ones among them"
        costs = "the results are right, on hidden tests, too, but they cost too much"
    if share >= 1.0:
        return replace(no, passed=True, score=float(item.points), message=_joined(right, *told))
    says = _misconception(item, facts, None, None, "", right=True)
    return replace(
        no,
        score=round(item.points * share, 2),
        message=_joined(says, costs, *told),
    )


# ------------------------------------------------------------------------------------- predictions
def parameters(item: Predict, seed: int) -> dict[str, Any]:
    """The parameters of the questions of the learner with this seed."""
    return item.params(np.random.default_rng([seed, *item.id.encode()]))


def _right(truth: Any, said: Any, within: float) -> bool:
    if isinstance(truth, str):
        return isinstance(said, str) and said.strip().lower() == truth.strip().lower()
    if isinstance(said, str):
        try:
            said = float(said)
        except ValueError:
            return False
    return abs(said - truth) <= within * abs(truth)


def judge_predictions(item: Predict, answer: Answer) -> Verdict:
    """The first answers give the points, the newest decide whether it is passed."""
    no = Verdict(item.id, points=item.points)
    lacking = [q.name for q in item.questions if q.name not in answer.latest]
    if lacking:
        ask = f'tk.predict("{item.id}", {lacking[0]}=...)'
        return replace(no, message=f"not done: no prediction for {', '.join(lacking)}; {ask}")
    params = parameters(item, answer.seed)
    first, lines, good = 0, [], True
    for q in item.questions:
        truth = q.truth(**params)
        first += _right(truth, answer.first.get(q.name, ""), q.within)
        said = answer.latest[q.name]
        if _right(truth, said, q.within):
            lines.append(f"{q.name}: {said} is right. {q.why}".rstrip())
            continue
        good = False
        told = (
            says
            for says, f in q.wrong.items()
            if _right(f(**params), said, q.within) and not _right(truth, f(**params), q.within)
        )
        why = next(told, q.otherwise)
        lines.append(f"{q.name}: {said} is not it{NOT_IT if why else '.'}{why}")
    score = round(item.points * (0.5 + 0.5 * first / len(item.questions)), 2)
    half = "; half of the points are for having predicted" if item.points else ""
    lines.append(f"{first} of {len(item.questions)} first answers were right{half}")
    return replace(no, passed=good, score=score, message="\n".join(lines))
