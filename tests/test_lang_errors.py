"""Every message of the front end, as a learner reads it: code, words, line, caret, hint.

tests/data/lang_errors.txt holds kernels and their messages, separated by "### name" and "---".
TKLEARN_UPDATE_GOLDEN=1 pytest tests/test_lang_errors.py writes the messages anew: read the
difference as a newcomer would.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lang_kit import message

import tklearn as tk
from tklearn.lang.errors import CODES

ROOT = Path(__file__).parent.parent
CASES = ROOT / "tests" / "data" / "lang_errors.txt"


def cases() -> dict[str, tuple[str, str]]:
    """name -> (kernel, message)."""
    parts = re.split(r"^### (\w+)\n", CASES.read_text(encoding="utf-8"), flags=re.M)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return {name: tuple(body.split("---\n")) for name, body in pairs}  # type: ignore[misc]


@pytest.fixture(scope="module")
def collected():
    """Messages of this run, written to the file when that was asked for."""
    found: dict[str, str] = {}
    yield found
    if os.environ.get("TKLEARN_UPDATE_GOLDEN"):
        old = cases()
        text = "".join(
            f"### {n}\n{source}---\n{found.get(n, message)}\n"
            for n, (source, message) in ((n, (c[0], c[1].rstrip("\n"))) for n, c in old.items())
        )
        CASES.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", cases())
def test_message(name: str, tmp_path: Path, collected: dict[str, str]) -> None:
    source, expected = cases()[name]
    got = message(tmp_path, source)
    assert got, "this kernel is accepted"
    collected[name] = got
    if not os.environ.get("TKLEARN_UPDATE_GOLDEN"):
        assert got == expected.rstrip("\n")


def test_each_message_helps() -> None:
    """A hint, or a message that says by itself what to write; and a place with a caret."""
    for name, (_, text) in cases().items():
        assert re.match(r"TK\d{3}: ", text), name
        assert "\n  hint: " in text or len(text.splitlines()[0]) > 25, name
        assert "object at 0x" not in text, name
        assert "UNKNOWN" not in text.replace("'UNKNOWN'", ""), name
        if "learner.py:" in text:
            lines = text.splitlines()
            at = next(i for i, x in enumerate(lines) if "learner.py:" in x)
            assert set(lines[at + 2].strip()) == {"^"}, name


def test_every_code_is_raised_and_every_raised_code_is_known() -> None:
    raised: set[str] = set()
    for path in (ROOT / "tklearn").rglob("*.py"):
        if path.name != "errors.py":
            raised |= set(re.findall(r'"(TK\d{3})"', path.read_text(encoding="utf-8")))
    assert raised - set(CODES) == set()
    assert set(CODES) - raised == set()


def test_errors_travel_between_processes() -> None:
    import pickle

    with pytest.raises(tk.LaunchError) as e:
        tk.kernel(warps=0)
    again = pickle.loads(pickle.dumps(e.value))
    assert str(again) == str(e.value)
    assert again.code == "TK407"
