"""What one run of a block tells about the order of its steps: which could have come earlier.

A run is a list of choices. `Order` repeats the choices of a path, goes on by itself, and follows
what each step acts on (`Act`): semaphores, named barriers, elements that atomics change. From that
it knows for each step what it came after for certain, and marks in the path the steps that should
be tried before others. explore.py turns that into a search, and says why this is enough. This file
knows agents, objects and order; it knows no values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tklearn.sim import named, registers, tma, wgmma
from tklearn.sim.schedule import Agent, Chooser

LONGEST = 20_000  # steps of one run


@dataclass
class Act:
    """What a step does to one object.

    kind: "give" (arrivals or bytes for a semaphore's phase), "pass" (a wait for one), "init",
    "come" (to a named barrier), "atomic". turn: the phase or opening that it belongs to; of a pass,
    how many phases were complete. left: arrivals and bytes that this phase lacked before. ends: it
    completes the turn. how, where: of an atomic, its kind if it commutes with its like, and the
    elements.
    """

    kind: str
    key: Any
    turn: int = 0
    ends: bool = False
    arrivals: int = 0
    nbytes: int = 0
    left: tuple[int, int] = (0, 0)
    how: str = ""
    where: frozenset[int] = frozenset()

    def meets(self, other: Act) -> bool:
        """Whether this, which could be next, has another effect after `other`, which is next."""
        if self.key != other.key:
            return False
        kinds = (self.kind, other.kind)
        if "init" in kinds:
            return True
        if kinds == ("atomic", "atomic"):
            alike = self.how != "" and self.how == other.how
            return not alike and not self.where.isdisjoint(other.where)
        if kinds == ("pass", "pass"):
            return False
        if other.kind == "pass":
            return other.left == (self.arrivals, -self.nbytes)
        if self.kind == "pass" or other.ends or self.turn != other.turn:
            return other.ends or self.turn != other.turn
        if self.kind == "come":
            return False
        pending, lacking = other.left
        ends = (pending - self.arrivals, lacking + self.nbytes) == (0, 0)
        return ends or self.arrivals + other.arrivals > pending


@dataclass
class Thing:
    """A semaphore, a named barrier, or an object that atomics change, in one run.

    Orders are bit sets of steps. given: the steps of each turn; over: what a completed turn is
    ordered after, with `mark` its part of a state's hash; passes: the waits that passed after so
    many turns.
    """

    count: int = 0
    init: int | None = None
    given: dict[int, list[int]] = field(default_factory=dict)
    sums: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    mark: dict[int, int] = field(default_factory=dict)
    passes: dict[int, list[int]] = field(default_factory=dict)
    atomics: list[tuple[int, Act]] = field(default_factory=list)
    touched: list[int] = field(default_factory=list)


@dataclass
class Step:
    """A step of a run: whose, at which node, what it is ordered after (itself included)."""

    agent: Agent
    node: int
    order: int
    mark: int


@dataclass
class Node:
    """A choice on the way: who could go on, who must be tried, who need not be.

    asleep: agents whose next step was tried here, or is the same as where it was tried. parts: the
    chosen step: transfers that it landed itself and what they acted on, then its own.
    """

    ready: list[Agent]
    chosen: Agent
    todo: list[Agent]
    asleep: dict[Agent, list[Act]]
    parts: list[tuple[Agent, list[Act]]] = field(default_factory=list)

    @property
    def acts(self) -> list[Act]:
        return [x for _, acts in self.parts for x in acts]

    @property
    def agents(self) -> list[Agent]:
        return [a for a, _ in self.parts]

    def tried(self) -> None:
        """The chosen step need not be tried again."""
        self.asleep[self.chosen] = self.acts
        if len(self.parts) == 2 and not self.parts[1][1]:  # it only waited for one transfer
            self.asleep[self.parts[0][0]] = self.acts


class Stop(Exception):
    """This run shows nothing new from here on."""


class TooLong(Exception):
    """A run has too many steps."""


class Order(Chooser):
    """One run: repeats the choices of `path`, goes on, and finds what to try before what."""

    def __init__(self, path: list[Node], search: Search) -> None:
        super().__init__()
        self.path, self.search = path, search
        self.old = len(path)  # nodes that are repeated
        self.log: list[Step] = []
        self.last: dict[Agent, int] = {}
        self.born: dict[Agent, int] = {}  # transfers: the step that issued them
        self.base: dict[Agent, tuple[int, int]] = {}  # from barriers
        self.things: dict[Any, Thing] = {}
        self.openings: dict[Any, list[Any]] = {}  # of named barriers
        self.granted: set[int] = set()
        self.commits: dict[int, list[int]] = {}  # wgmma groups by warp: the steps that closed them
        self.acts: list[tuple[Agent, list[Act]]] = []
        self.now: Agent | None = None
        self.batch: Any = None
        self.pending: list[tuple[int, int]] = []  # what the step comes after for certain
        self.new: list[Agent] = []  # transfers that it issues

    # ----------------------------------------------------------------------------- choosing
    def pick(self, batch: Any, agents: list[Agent]) -> Agent:
        self.batch = batch
        self._finish()
        depth = len(self.steps)
        if depth < self.old:
            node = self.path[depth]
            assert node.ready == agents, "a repeated run must be the same run"
            return node.chosen
        if depth >= LONGEST:
            raise TooLong
        return self._node(agents)

    def _node(self, agents: list[Agent]) -> Agent:
        """A choice that was not met before."""
        search = self.search
        asleep: dict[Agent, list[Act]] = {}
        state = hash(frozenset((a, self.log[i].mark) for a, i in self.last.items()))
        known = state in search.states
        search.states.add(state)
        if search.prune == "states" and known:
            raise Stop
        if search.prune == "orders" and self.path:
            before, made = self.path[-1], self.path[-1].acts
            asleep = {
                a: acts
                for a, acts in before.asleep.items()
                if a not in before.agents and not any(x.meets(y) for x in acts for y in made)
            }
        awake = [a for a in agents if a not in asleep]
        if not awake:
            raise Stop
        first = self.next(awake)
        todo = [first] if search.prune == "orders" else [first, *(a for a in awake if a != first)]
        self.path.append(Node(agents, first, todo, asleep))
        return first

    # ---------------------------------------------------------------------------- observing
    def begins(self, agent: Any) -> None:
        self.now = self.agent(agent)
        self.acts, self.pending, self.new = [(self.now, [])], [], []
        waiting = getattr(agent, "waiting", None)
        if isinstance(waiting, named.Waiting):
            key = ("barrier", waiting.gen.id)
            thing = self.things[key]
            turn = next(t for t, g in enumerate(self.openings[key]) if g is waiting.gen)
            self.pending.append((thing.over[turn], thing.mark[turn]))
        elif isinstance(waiting, wgmma.Waiting) and waiting.over > 0:
            for p in waiting.peers:
                i = self.commits[p.id][waiting.over - 1]
                self.pending.append((self.log[i].order, self.log[i].mark))
        elif isinstance(waiting, registers.Waiting):
            self._reallocates(agent.id)

    def _reallocates(self, warp: int) -> None:
        """Registers change hands: the order is of no account while each warp does it once."""
        if warp in self.granted:
            self.search.reason = f"warp {warp} reallocates registers more than once"
        self.granted.add(warp)

    def event(self, w: Any, kind: str, s: Any, *what: Any) -> None:
        super().event(w, kind, s, *what)
        found = getattr(self, "_on_" + kind, None)
        if found is not None:
            found(w, *what)

    def _mine(self) -> list[Act]:
        return self.acts[-1][1]

    def _on_init(self, w: Any, sem: Any) -> None:
        self._mine().append(Act("init", ("semaphore", sem.index)))

    def _on_arrive(self, w: Any, sem: Any, n: int) -> None:
        nbytes = 0
        if self._mine() and self._mine()[-1].kind == "expect":
            nbytes = self._mine().pop().nbytes
        key = ("semaphore", sem.index)
        self._thing(key).count = sem.count
        left = (sem.pending + n, sem.bytes - nbytes)
        self._mine().append(Act("give", key, sem.phase, arrivals=n, nbytes=nbytes, left=left))

    def _on_expect(self, w: Any, sem: Any, nbytes: int) -> None:
        self._mine().append(Act("expect", ("semaphore", sem.index), nbytes=nbytes))

    def _on_bytes(self, w: Any, sem: Any, nbytes: int) -> None:
        key = ("semaphore", sem.index)
        self._thing(key).count = sem.count or 0
        left = (sem.pending, sem.bytes + nbytes)
        self._mine().append(Act("give", key, sem.phase, nbytes=-nbytes, left=left))

    def _on_phase(self, w: Any, sem: Any, phase: int) -> None:
        self._mine()[-1].ends = True

    def _on_pass(self, w: Any, sem: Any, phase: int) -> None:
        left = (sem.pending, sem.bytes)
        self._mine().append(Act("pass", ("semaphore", sem.index), sem.phase, left=left))

    def _on_named(self, w: Any, g: Any) -> None:
        key = ("barrier", g.id)
        openings = self.openings.setdefault(key, [])
        if not openings or openings[-1] is not g:
            openings.append(g)
        full = 32 * len(g.came) >= g.threads
        self._mine().append(Act("come", key, len(openings) - 1, full, 1))

    def _on_load(self, w: Any, f: Any) -> None:
        self.new.append(self.transfers[id(f)][1])

    _on_store = _on_load

    def _on_land(self, w: Any, f: Any) -> None:
        agent = self.transfers[id(f)][1]
        acts = self._mine() if agent == self.now else []
        if isinstance(f, tma.Store) and f.how == "add":
            idx, inside = f.win.elements(1)
            where = np.broadcast_to(idx, inside.shape)[inside]
            acts.append(Act("atomic", f.win.g.name, where=frozenset(where.tolist())))
        if agent != self.now:  # the step waits for it
            self.acts.insert(-1, (agent, acts))

    def _on_atomic(self, w: Any, mem: Any, kind: str, used: bool, idx: Any) -> None:
        exact = mem.type.dtype.kind != "f"
        how = kind if not used and (kind in ("max", "min") or (kind == "add" and exact)) else ""
        self._mine().append(
            Act("atomic", mem.name, how=how, where=frozenset(np.asarray(idx).tolist()))
        )

    def opens(self, batch: Any) -> None:
        """block.sync() opens: all that follows comes after all that was."""
        self._finish()
        order = mark = 0
        for w in batch.warps:
            i = self.last[w.id]
            order, mark = order | self.log[i].order, mark + self.log[i].mark
        for w in batch.warps:
            self.base[w.id] = order, hash(("opens", mark))

    def ends(self, batch: Any) -> None:
        self._finish()

    # ------------------------------------------------------------------------------ ordering
    def _thing(self, key: Any) -> Thing:
        return self.things.setdefault(key, Thing())

    def _finish(self) -> None:
        """Take the step that was made into the order, and look for steps it could come before."""
        if self.now is None:
            return
        node = len(self.steps) - 1
        for agent, acts in self.acts:
            self._take(agent, node, acts)
        me = self.now
        if isinstance(me, int):
            for t in self.new:
                self.born[t] = self.last[me]
            groups = self.commits.setdefault(me, [])
            closed = len(self.batch.warps[me].products.groups)
            groups += [self.last[me]] * (closed - len(groups))
        at = self.path[node]
        at.parts = self.acts
        self.now = None
        if node >= self.old - 1 and self.search.prune == "orders":
            self._repeats(at)

    def _repeats(self, at: Node) -> None:
        """A transfer that the step has landed itself is a step, too, and may have been tried."""
        before: list[Act] = []
        for agent, acts in self.acts[:-1]:
            if agent in at.asleep and not any(x.meets(y) for x in acts for y in before):
                raise Stop
            before += acts

    def _take(self, agent: Agent, node: int, acts: list[Act]) -> None:
        me = len(self.log)
        before = self.last.get(agent, self.born.get(agent))
        own = mark = 0
        sure = [self.base.pop(agent)] if agent in self.base else []
        if before is not None:
            sure.append((self.log[before].order, self.log[before].mark))
        if agent == self.now:
            sure += self.pending
            waited = [self.log[self.last[a]] for a, _ in self.acts if a != agent]
            sure += [(x.order, x.mark) for x in waited]  # transfers that it has landed itself
        for o, k in sure:
            own, mark = own | o, mark + k
        place = _Place(self, me, own, mark)
        for x in acts:
            getattr(place, "on_" + x.kind)(self._thing(x.key), x)
        what = hash((agent, place.mark, tuple((x.kind, x.key, x.ends) for x in acts)))
        self.log.append(Step(agent, node, place.order | 1 << me, what))
        self.last[agent] = me
        for x in acts:
            if x.ends:
                self._over(self._thing(x.key), x.turn)
        if node >= self.old - 1 and self.search.prune == "orders":
            for b in sorted(place.races):
                self._reverse(b, me)

    def _over(self, thing: Thing, turn: int) -> None:
        """A phase or an opening is complete."""
        order, mark = thing.over.get(turn - 1, 0), thing.mark.get(turn - 1, 0)
        given = thing.given[turn]
        marks = sum(self.log[i].mark for i in given)
        for i in given + thing.passes.get(turn, []):
            order |= self.log[i].order
        passed = sum(self.log[i].mark for i in thing.passes.get(turn, []))
        thing.over[turn], thing.mark[turn] = order, hash((mark, marks, passed))

    def _reverse(self, b: int, me: int) -> None:
        """Step `me` could come before step b: see to it that a run tries that."""
        node = self.path[self.log[b].node]
        after = [j for j in range(b + 1, me) if not self.log[j].order >> b & 1] + [me]
        among = 0
        first: list[Agent] = []
        seen: set[Agent] = set()
        for j in after:
            step = self.log[j]
            if step.agent not in seen:
                seen.add(step.agent)
                if not step.order & among:
                    first.append(step.agent)
            among |= 1 << j
        if any(a in node.todo for a in first):
            return
        mine = self.log[me].agent
        pick = mine if mine in first else first[0]
        node.todo += [pick] if pick in node.ready else [a for a in node.ready if a not in node.todo]


class _Place:
    """Where a step stands in the order, while what it acts on is looked at.

    own: what it comes after whatever the order of the rest; order: what it came after in this run.
    races: steps that it met and could have come before.
    """

    def __init__(self, run: Order, me: int, own: int, mark: int) -> None:
        self.run, self.me, self.own, self.order, self.mark = run, me, own, own, mark
        self.races: set[int] = set()

    def after(self, steps: Iterable[int]) -> None:
        for i in steps:
            if i == self.me:
                continue
            self.order |= self.run.log[i].order
            self.mark += self.run.log[i].mark

    def meet(self, steps: Iterable[int]) -> None:
        self.races.update(i for i in steps if i != self.me and not self.own >> i & 1)

    def _turn(self, thing: Thing, turn: int) -> None:
        """After all that was completed before this turn."""
        if thing.init is not None:
            self.meet([thing.init])
            self.after([thing.init])
        if turn - 1 in thing.over:
            self.order |= thing.over[turn - 1]
            self.mark += thing.mark[turn - 1]

    def on_init(self, thing: Thing, x: Act) -> None:
        self.meet(thing.touched)
        self.after(thing.touched)
        thing.init = self.me
        thing.touched.append(self.me)

    def on_give(self, thing: Thing, x: Act) -> None:
        thing.touched.append(self.me)
        given = thing.given.setdefault(x.turn, [])
        self._turn(thing, x.turn)
        self.meet(thing.given.get(x.turn - 1, []))
        if self._early(thing, x):
            self.meet(given)
            self.after(given)
        given.append(self.me)
        if x.ends:
            log = self.run.log
            known = self.order
            for i in given[:-1]:
                known |= log[i].order
            waits = thing.passes.get(x.turn, [])
            self.meet(i for i in waits if not known >> i & 1)

    @staticmethod
    def _early(thing: Thing, x: Act) -> bool:
        """Whether another order within this phase would have completed it before now."""
        sums = thing.sums.setdefault(x.turn, {(0, 0): 1})
        for (n, b), times in list(sums.items()):
            at = (n + x.arrivals, b + x.nbytes)
            sums[at] = min(sums.get(at, 0) + times, 2)
        done = sums.get((thing.count, 0), 0)
        return done > (1 if x.ends else 0)

    def on_pass(self, thing: Thing, x: Act) -> None:
        thing.touched.append(self.me)
        self._turn(thing, x.turn)
        if x.turn >= 2:  # it could have passed two phases ago
            self.meet(thing.given[x.turn - 2])
        thing.passes.setdefault(x.turn, []).append(self.me)

    def on_come(self, thing: Thing, x: Act) -> None:
        self._turn(thing, x.turn)
        self.meet(thing.given.get(x.turn - 1, []))
        thing.given.setdefault(x.turn, []).append(self.me)

    def on_atomic(self, thing: Thing, x: Act) -> None:
        met = [i for i, y in thing.atomics if x.meets(y)]
        self.meet(met)
        self.after(met)
        thing.atomics.append((self.me, x))


class Search:
    """The schedules of one block: the bounds, and what was seen."""

    def __init__(self, prune: str, deadline: float, limit: int) -> None:
        self.prune, self.deadline, self.limit = prune, deadline, limit
        self.states: set[int] = set()
        self.runs = self.tried = 0  # to the end; all of them
        self.reason = ""  # why it is not complete
