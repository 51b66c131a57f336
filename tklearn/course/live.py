"""The instructor's live page: how far the class is, what was predicted, what fails most.

A small Tornado server (JupyterLab brings Tornado). Learners' notebooks post to ADDRESS/TOKEN/report
(report.py); the page at ADDRESS/TOKEN/ shows counts and no names, is made here as plain HTML, and
asks for itself again every few seconds. There are no accounts: who knows the token may see the page
and report. Only addresses of a local network are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import ipaddress
import json
import re
import secrets
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, HTTPError, RequestHandler

from tklearn.course.engine import NOT_IT, parameters
from tklearn.course.feedback import STYLE
from tklearn.course.item import Predict
from tklearn.course.items import ITEMS
from tklearn.course.report import wrong

PORT = 8765
LEARNERS = 2_000
REPORT = 20_000  # bytes
REFRESH = 4  # seconds
NARROW = '<td style="white-space:nowrap">'
LINKS = (
    '<p><a href="#predictions">Predictions</a> &middot; <a href="#stops">What stops them now</a> '
    '&middot; <a href="#progress">Progress</a></p>'
)
BAR = '<span style="display:inline-block;height:.8em;background:{};width:{:.1f}em"></span>'


@dataclass
class Row:
    """One learner and one exercise."""

    tries: int = 0
    passed: bool = False
    failed: str = ""  # what was wrong the last time, in a line
    seen: dict[str, int] = field(default_factory=dict)  # the first predictions: report.seen


class Board:
    """What was reported. file: where reports are kept, to begin again after a restart."""

    def __init__(self, file: Path | None = None) -> None:
        self.learners: dict[str, dict[str, Row]] = {}
        self._file = file
        if file is not None and file.is_file():
            for line in file.read_bytes().split(b"\n"):
                with contextlib.suppress(ValueError):
                    self._take(json.loads(line))

    def add(self, report: Any) -> None:
        """One report. Errors: ValueError for what is none."""
        self._take(report)
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as f:
                f.write(json.dumps(report) + "\n")

    def _take(self, report: Any) -> None:
        if not isinstance(report, dict):
            raise ValueError("no report")
        who, item, what = (report.get(n) for n in ("who", "item", "what"))
        if type(who) is not str or not re.fullmatch("[0-9a-f]{1,32}", who):
            raise ValueError("no learner")
        if type(item) is not str or item not in ITEMS:
            raise ValueError("no exercise")
        if who not in self.learners and len(self.learners) >= LEARNERS:
            raise ValueError("too many learners")
        row = self.learners.setdefault(who, {}).setdefault(item, Row())
        if what == "check":
            row.tries += 1
            row.passed = row.passed or report.get("passed") is True
            row.failed = "" if row.passed else _stops(item, str(report.get("message", "")))
        it = ITEMS[item]
        if what == "predict" and isinstance(it, Predict) and isinstance(report.get("seen"), dict):
            most = {q.name: len(q.wrong) for q in it.questions}
            got = report["seen"]
            good = {k: n for k, n in got.items() if type(n) is int and -1 <= n <= most.get(k, -2)}
            row.seen = {**good, **row.seen}

    # ------------------------------------------------------------------------------------ the page
    def page(self) -> str:
        """The whole page."""
        n = len(self.learners)
        parts = [f"<h1>{n} learner{'' if n == 1 else 's'}</h1>", LINKS]
        parts += [self._predictions(), self._failures(), self._progress()]
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The class</title>'
            f'<meta http-equiv="refresh" content="{REFRESH}"><style>{STYLE}</style></head>'
            f"<body>{''.join(parts)}</body></html>\n"
        )

    def _rows(self, item: str) -> list[Row]:
        return [rows[item] for rows in self.learners.values() if item in rows]

    def _progress(self) -> str:
        lines, nobody = [], []
        widest = max(len(self.learners), 1) / 20
        for it in ITEMS.values():
            rows = self._rows(it.id)
            if not rows:
                nobody.append(it.id)
                continue
            passed = sum(r.passed for r in rows)
            tried = sum(r.tries > 0 and not r.passed for r in rows)
            bars = BAR.format("#009E73", passed / widest) + BAR.format("#E69F00", tried / widest)
            cells = f"<td>{it.id}</td><td>{html.escape(it.title)}</td><td>{bars}</td>"
            lines.append(f"<tr>{cells}{NARROW}{passed} passed, {tried} trying</td></tr>")
        left = f"<p>Nobody has begun: {', '.join(nobody)}.</p>" if nobody else ""
        return f'<h2 id="progress">Progress</h2><table>{"".join(lines)}</table>{left}'

    def _failures(self) -> str:
        every = ((i, r.failed) for i in ITEMS for r in self._rows(i) if r.failed)
        lines = [
            f'<tr><td class="n">{n}</td><td>{i}</td><td>{html.escape(text)}</td></tr>'
            for (i, text), n in Counter(every).most_common(8)
        ]
        head = '<h2 id="stops">What stops them now</h2>'
        return f"{head}<table>{''.join(lines) or '<tr><td>nothing'}</table>"

    def _predictions(self) -> str:
        parts, links = [], []
        for it in ITEMS.values():
            rows = [r for r in self._rows(it.id) if r.seen]
            if not isinstance(it, Predict) or not rows:
                continue
            links.append(f'<a href="#{it.id}">{it.id}</a>')
            parts.append(f'<h3 id="{it.id}">{it.id}. {html.escape(it.title)}</h3>')
            params = parameters(it, 0)
            for q in it.questions:
                seen = Counter(r.seen[q.name] for r in rows if q.name in r.seen)
                names = ["&#10003; right", *(html.escape(w) for w in q.wrong), "another answer"]
                counts = [seen[n] for n in range(len(names) - 1)] + [seen[-1]]
                widest = max(counts, default=0) / 12 or 1
                lines = [
                    f'<tr><td class="n">{n}</td>'
                    f"<td>{BAR.format('#D55E00' if i else '#009E73', n / widest)}</td>"
                    f"<td>{name}</td></tr>"
                    for i, (name, n) in enumerate(zip(names, counts))
                    if n or not i
                ]
                asked = html.escape(f"{q.name}: {q.text.format(**params)}")
                parts.append(f"<p>{asked}</p><table>{''.join(lines)}</table>")
        said = "None yet."
        if parts:
            said = (
                f"The first answers to {', '.join(links)}. Some questions have other numbers for "
                "each learner of a class; those below are an example."
            )
        return f'<h2 id="predictions">Predictions</h2><p>{said}</p>{"".join(parts)}'


def _stops(item: str, message: str) -> str:
    """What stops a learner, from a verdict that is not passed. Of a prediction only the question
    and the misconception: another learner's numbers differ, and may make the same answer right."""
    said = wrong(message)
    if not isinstance(ITEMS[item], Predict):
        return said
    answered = re.match(rf"(\w+): .* is not it(?:\.|{NOT_IT}(.*))$", said)
    if answered is None:
        return said
    return f"{answered[1]}: {answered[2]}" if answered[2] else ""


# ------------------------------------------------------------------------------------- the server
class Page(RequestHandler):
    """TOKEN/ and TOKEN/report."""

    def initialize(self, board: Board, token: str) -> None:
        self.board, self.token = board, token

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("X-Content-Type-Options", "nosniff")
        policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
        self.set_header("Content-Security-Policy", policy)

    def prepare(self) -> None:
        try:
            address = ipaddress.ip_address((self.request.remote_ip or "").partition("%")[0])
        except ValueError:
            raise HTTPError(403) from None
        if not local(address):
            raise HTTPError(403)
        if not secrets.compare_digest(self.path_kwargs["token"].encode(), self.token.encode()):
            raise HTTPError(404)

    def get(self, token: str, what: str) -> None:
        if what:
            raise HTTPError(404)
        self.finish(self.board.page())

    def post(self, token: str, what: str) -> None:
        if what != "report":
            raise HTTPError(404)
        try:
            self.board.add(json.loads(self.request.body))
        except (ValueError, RecursionError):
            raise HTTPError(400) from None
        self.finish("ok")

    def log_exception(self, *_: Any) -> None:
        """Nothing of a learner's request in the terminal."""

    def write_error(self, status_code: int, **_: Any) -> None:
        self.finish(f"{status_code}\n")


def local(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address belongs to this machine or its local network."""
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    return address.is_loopback or address.is_private or address.is_link_local


def server(board: Board, token: str) -> HTTPServer:
    """The server, not yet listening."""
    path = r"/(?P<token>[\w-]{1,100})/(?P<what>\w{0,20})"
    app = Application([(path, Page, {"board": board, "token": token})], log_function=_quiet)
    return HTTPServer(app, max_body_size=REPORT, max_buffer_size=REPORT + 20_000)


def _quiet(_: RequestHandler) -> None:
    """No line for each request: the terminal shows addresses of learners otherwise."""


def own_address() -> str:
    """This machine's address in the local network, as far as it can be told. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("10.255.255.255", 1))
            return str(s.getsockname()[0])
        except OSError:
            return "127.0.0.1"


async def _serve(board: Board, token: str, host: str, port: int) -> None:
    made = server(board, token)
    made.listen(port, host)
    shown = own_address() if host in ("", "0.0.0.0", "::") else host
    address = f"http://{shown}:{port}/{token}"
    print(f"the page:            {address}/")
    print(f"for the learners:    TKLEARN_CLASS={address}")
    print("stop it with Ctrl-C", flush=True)
    await asyncio.Event().wait()


def main(host: str, port: int, token: str, file: Path | None) -> int:
    """Serves until Ctrl-C."""
    if token and not re.fullmatch(r"[\w-]{8,100}", token):
        raise ValueError("a token is 8 to 100 letters, digits, - and _")
    try:
        asyncio.run(_serve(Board(file), token or secrets.token_urlsafe(12), host, port))
    except KeyboardInterrupt:
        print("stopped")
    return 0
