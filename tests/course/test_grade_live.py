"""The live page: reports from notebooks, the page, and who may see it."""

from __future__ import annotations

import asyncio
import html
import ipaddress
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tklearn as tk
from tklearn.course import attempts, engine, live, report, worker
from tklearn.course.extract import Answer
from tklearn.course.item import Predict
from tklearn.course.items import ITEMS
from tklearn.course.live import Board

TOKEN = "a-token_of-24-letters-ab"


def post(board: Board, who: int, item: str, what: str, **facts: Any) -> None:
    board.add({"who": f"{who:x}", "item": item, "what": what, **facts})


def test_progress_failures_and_histograms() -> None:
    board = Board()
    for who in range(10):
        post(board, who, "P3", "predict", seen={"a": 0 if who < 7 else 1 if who < 9 else -1})
        post(board, who, "P3", "predict", seen={"a": 0})
        post(board, who, "M1", "check", passed=who < 4, message=f"why {who % 2}\nmore")
    post(board, 0, "M1", "check", passed=False, message="passed before")
    page = board.page()
    assert "10 learners" in page
    assert "4 passed, 6 trying" in page
    assert page.count("why 0") == page.count("why 1") == 1
    p3 = ITEMS["P3"]
    assert isinstance(p3, Predict)
    counted = re.findall(r'<td class="n">(\d+)</td><td>[^T]*?</td><td>(.*?)</td>', page)
    first = next(iter(p3.questions[0].wrong))
    for want in (("7", "&#10003; right"), ("2", html.escape(first)), ("1", "another answer")):
        assert want in counted, "the first predictions count"
    assert "{" not in page.partition("</style>")[2], "no raw templates"
    assert "<script" not in page


def test_one_learner() -> None:
    board = Board()
    post(board, 1, "M1", "check", passed=True)
    assert "<h1>1 learner</h1>" in board.page()


def test_what_stops_them_is_what_is_wrong_and_gives_no_answer_away() -> None:
    tk.predict("P3", a=1, b=4, c=32, d=1, e=1, f=32)
    said = tk.check("P3").message
    assert said.startswith("a: 1 is right.")
    assert report.wrong(said).startswith("f: 32 is not it: ")
    board = Board()
    post(board, 1, "P3", "check", passed=False, message=said)
    page = board.page()
    assert "f: 128 words in 32 banks are four for each bank" in page
    assert "is right." not in page
    assert "is not it" not in page, "32 may be right for another learner"
    assert report.wrong("the results are right, but they cost too much\nmore").startswith("the res")


PREDICTIONS = [i for i in ITEMS.values() if isinstance(i, Predict)]
EACH = pytest.mark.parametrize("item", PREDICTIONS, ids=lambda i: i.id)


@EACH
def test_a_wrong_number_stops_nobody_without_its_misconception(item: Predict) -> None:
    """For each question: a number that is no known answer is left out, learners with the same
    misconception and other numbers are one line."""
    board, named = Board(), set()
    for seed in (5, 6):
        params = engine.parameters(item, seed)
        truth = {q.name: q.truth(**params) for q in item.questions}
        for q in item.questions:
            cases = {"": "nonsense", **{says: f(**params) for says, f in q.wrong.items()}}
            for says, value in cases.items():
                said = {**truth, q.name: value}
                answer = Answer(item.id, first=said, latest=said, seed=seed)
                verdict = engine.judge_predictions(item, answer)
                if verdict.passed:
                    continue
                one = Board()
                post(one, 1, item.id, "check", passed=False, message=verdict.message)
                text = one.learners["1"][item.id].failed
                assert " is not it" not in text
                if says or q.otherwise:
                    assert text.startswith(f"{q.name}: ")
                    named.add(text)
                else:
                    assert text == ""
                    assert "<td>nothing" in one.page()
                post(board, seed, item.id, "check", passed=False, message=verdict.message)
    known = sum(len(q.wrong) + bool(q.otherwise) for q in item.questions)
    assert 0 < len(named) <= known
    post(board, 7, item.id, "check", passed=False, message="not done: no prediction for a")
    assert "not done: no prediction for a" in board.page()


def test_what_a_pause_needs_comes_first_and_each_part_is_a_click_away() -> None:
    board = Board()
    assert "None yet." in board.page()
    for item in PREDICTIONS:
        post(board, 1, item.id, "predict", seen={item.questions[0].name: 0})
    page = board.page()
    places = [page.index(f'id="{name}"') for name in ("predictions", "P1", "stops", "progress")]
    assert places == sorted(places)
    for name in re.findall(r'href="#(\w+)"', page):
        assert page.count(f'id="{name}"') == 1
    assert {f'href="#{i.id}"' for i in PREDICTIONS} <= set(re.findall(r'href="#\w+"', page))
    begun = page.count(" passed, ")
    assert begun == len(PREDICTIONS), "exercises that nobody has begun are no rows"
    left = re.search(r"Nobody has begun: (.*?)\.</p>", page)
    assert left
    assert set(left[1].split(", ")) == {*ITEMS} - {i.id for i in PREDICTIONS}


@EACH
def test_each_prediction_is_seen_for_what_it_is(item: Predict) -> None:
    """With a learner's own numbers; what is no known answer is "another"."""
    attempts.folder().mkdir(parents=True, exist_ok=True)
    (attempts.folder() / "learner.json").write_text(json.dumps({"seed": 5}))
    params = engine.parameters(item, 5)
    truth = {q.name: q.truth(**params) for q in item.questions}
    assert set(report.seen(item.id, truth).values()) == {0}
    for q in item.questions:
        for n, (says, value) in enumerate(q.wrong.items(), 1):
            got = report.seen(item.id, {q.name: value(**params)})
            assert got.keys() == {q.name}
            if value(**params) != truth[q.name]:
                assert 1 <= got[q.name] <= n, says
    q = item.questions[0]
    assert report.seen(item.id, {q.name: "nonsense"}) == {q.name: -1}
    assert report.seen("M1", {"a": 1}) == {}


@pytest.mark.parametrize(
    "bad",
    [
        None, [], {}, {"who": "a"}, {"who": "Ann Smith", "item": "M1", "what": "check"},
        {"who": "a", "item": "X9", "what": "check"}, {"who": "a", "item": ["M1"], "what": "check"},
        {"who": 7, "item": "M1", "what": "check"},
    ],
)  # fmt: skip
def test_what_is_no_report(bad: Any) -> None:
    board = Board()
    with pytest.raises(ValueError, match=r"^no "):
        board.add(bad)
    assert not board.learners


def test_hostile_reports_only_show_as_text() -> None:
    board = Board()
    evil = "<script>alert(1)</script>"
    post(board, 1, "M1", "check", passed=False, message=evil)
    post(board, 1, "P3", "predict", seen={"a": evil, "zz": 0, "b": [1], "c": 99, "d": 0})
    post(board, 1, "P3", "check", passed="yes", message=7)
    page = board.page()
    assert evil not in page
    assert "&lt;script&gt;" in page
    assert board.learners["1"]["P3"].seen == {"d": 0}
    assert not board.learners["1"]["P3"].passed
    for who in range(live.LEARNERS + 5):
        try:
            post(board, who, "M1", "check", passed=True)
        except ValueError:
            break
    assert len(board.learners) == live.LEARNERS


def test_reports_are_kept_over_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    post(Board(file), 1, "M1", "check", passed=True)
    with file.open("a") as f:
        f.write('{"who": "2", "it')
    assert Board(file).learners.keys() == {"1"}


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("127.0.0.1", True), ("192.168.1.7", True), ("10.0.0.9", True), ("172.16.3.4", True),
        ("::1", True), ("fe80::1", True), ("::ffff:192.168.1.7", True),
        ("8.8.8.8", False), ("172.32.0.1", False), ("2600::1", False), ("::ffff:8.8.8.8", False),
    ],
)  # fmt: skip
def test_only_the_local_network(address: str, may: bool) -> None:
    assert live.local(ipaddress.ip_address(address)) is may


# ------------------------------------------------------------------------------------ the server
@pytest.fixture
def served() -> Iterator[tuple[str, Board]]:
    """(address with the token, board) of a running server."""
    board, ready = Board(), threading.Event()
    found: list[Any] = []

    async def main() -> None:
        made = live.server(board, TOKEN)
        made.listen(0, "127.0.0.1")
        (port,) = [s.getsockname()[1] for s in made._sockets.values()]
        stop = asyncio.Event()
        found.extend([port, asyncio.get_running_loop(), stop])
        ready.set()
        await stop.wait()
        made.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert ready.wait(20)
    port, loop, stop = found
    yield f"http://127.0.0.1:{port}/{TOKEN}", board
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)


def ask(address: str, data: bytes | None = None) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(address, data), timeout=20) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def test_the_server(served: tuple[str, Board]) -> None:
    address, board = served
    good = json.dumps({"who": "1", "item": "M1", "what": "check", "passed": True}).encode()
    assert ask(address + "/report", good) == (200, "ok")
    assert "<h1>1 learner</h1>" in ask(address + "/")[1]
    wrong = address.replace(TOKEN, "another-token")
    assert ask(wrong + "/")[0] == ask(wrong + "/report", good)[0] == 404
    assert ask(address.replace("/" + TOKEN, "/"))[0] == 404
    assert ask(address + "/report")[0] == ask(address + "/", good)[0] == 404
    assert ask(address + "/report", b"\xff{") == (400, "400\n")
    assert ask(address + "/report", b"[" * 15_000)[0] == 400
    with pytest.raises((OSError, AssertionError)):
        assert ask(address + "/report", b"x" * (live.REPORT + 1))[0] == 200
    assert len(board.learners) == 1


def test_a_notebook_reports_only_where_a_class_is_named(
    served: tuple[str, Board], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, board = served
    event = {"item": "M1", "what": "check", "passed": False, "message": "a\nb", "answer": "secret"}
    report.send(event)
    monkeypatch.setenv("TKLEARN_CLASS", "file:///etc/passwd")
    report.send(event)
    monkeypatch.setenv("TKLEARN_CLASS", address + "/")
    report.send(event)
    end = time.monotonic() + 20
    while not board.learners and time.monotonic() < end:
        time.sleep(0.01)
    ((row,),) = [list(rows.values()) for rows in board.learners.values()]
    assert (row.tries, row.failed) == (1, "a")


def test_a_page_that_is_gone_costs_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TKLEARN_CLASS", "http://127.0.0.1:9/x")
    monkeypatch.setattr(report, "PAUSE", 0.0)
    start = time.monotonic()
    for _ in range(200):
        report.send({"item": "M1", "what": "check"})
    assert time.monotonic() - start < 1.5
    report._waiting.join()


def test_a_check_is_reported(served: tuple[str, Board], monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the page's own functions (attempts.py calls report.py)."""
    address, board = served
    monkeypatch.setenv("TKLEARN_CLASS", address)
    report.send({"item": "a lesson's", "what": "predict", "said": {"a": 1}})
    tk.predict("P3", a=1)
    end = time.monotonic() + 20
    while not board.learners and time.monotonic() < end:
        time.sleep(0.01)
    assert [rows["P3"].seen for rows in board.learners.values()] == [{"a": 0}]


def test_a_prediction_does_not_wait_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reporting thread holds the process that checks, here for as long as it likes; the page's
    server takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("TKLEARN_CLASS", f"http://127.0.0.1:{silent.getsockname()[1]}/{TOKEN}")
        done = threading.Event()

        def said() -> None:
            tk.predict("P1")
            done.set()

        with worker._lock:
            threading.Thread(target=said, daemon=True).start()
            assert done.wait(20), "tk.predict waits for the process that checks"
