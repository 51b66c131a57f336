"""Every error code has a page, and every page's program gives that error at the marked line.

TKLEARN_UPDATE_GOLDEN=1 pytest tests/test_explain.py writes the messages into the pages anew, and
docs/errors/ from them: read the difference as a newcomer would.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
from pathlib import Path

import pytest

import tklearn as tk
from tklearn import explained
from tklearn.cli import main
from tklearn.lang.errors import CODES

ROOT = Path(__file__).parent.parent
UPDATE = bool(os.environ.get("TKLEARN_UPDATE_GOLDEN"))
FILE = "example.py"


def raised(program: str) -> tuple[tk.TkError, int]:
    """The error that a program gives, and the line that it names or was called from."""
    linecache.cache[FILE] = (len(program), None, program.splitlines(keepends=True), FILE)
    with pytest.raises(tk.TkError) as e:
        exec(compile(program, FILE, "exec"), {"__name__": "__main__"})
    frames = traceback.extract_tb(e.value.__traceback__)
    calling = [f.lineno for f in frames if f.filename == FILE]
    loc = e.value.loc
    line = loc.line if loc is not None and loc.file == FILE else calling[-1]
    assert line is not None
    return e.value, line


def test_each_code_has_a_page_and_each_page_a_code() -> None:
    assert {p.stem for p in explained.FOLDER.glob("*.md")} == set(CODES)


@pytest.mark.parametrize("code", CODES)
def test_page(code: str) -> None:
    page = tk.explain(code)
    assert isinstance(page, explained.Page)
    assert page.text.startswith(f"# {code}: {CODES[code]}\n")
    for part in ("## An example", "## Why", "## What to do"):
        assert page.text.count(f"\n{part}\n") == 1
    program = page.program()
    if "import torch" in program:
        pytest.importorskip("torch")
    if code == "TK423":
        pytest.importorskip("cupy")
    marked = [i for i, x in enumerate(program.splitlines(), 1) if x.endswith(explained.MARK)]
    error, line = raised(program)
    assert error.code == code, error
    assert marked == [line]
    if UPDATE:
        new = page.text.replace(f"```text\n{page.message()}```", f"```text\n{error}\n```")
        (explained.FOLDER / f"{code}.md").write_text(new, encoding="utf-8")
    else:
        assert page.message() == f"{error}\n"
    see = re.search(r"^See also (.*)\.$", page.text, re.M)
    assert see is not None
    assert set(see[1].split(", ")) <= set(CODES) - {code}
    prose = re.sub(r"```.*?```", "", page.text, flags=re.S)
    assert 50 < len(prose.split()) < 260
    assert max(map(len, prose.splitlines())) <= 100


def test_docs_are_the_pages() -> None:
    folder = ROOT / "docs" / "errors"
    if UPDATE:
        explained.write_docs(folder)
    files = explained.docs()
    assert {p.name for p in folder.iterdir()} == set(files)
    for name, text in files.items():
        assert (folder / name).read_text(encoding="utf-8") == text, "tklearn explain --docs"
    for name, text in files.items():
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.S)
        for target in re.findall(r"\]\((.*?)\)", prose):
            assert (folder / target).is_file(), (name, target)


def test_ways_to_ask() -> None:
    text = tk.explain("TK210").text
    assert tk.explain(210).text == tk.explain("tk210").text == tk.explain(" TK210: ").text == text
    with pytest.raises(tk.TkError) as e:
        tk.kernel(threads=0)
    assert tk.explain(e.value).code == "TK407"
    for unknown, near in (("TK219", "TK210"), ("TK50", "TK500"), ("TK508x", "TK508")):
        with pytest.raises(tk.TkError, match=near):
            tk.explain(unknown)
    with pytest.raises(tk.TkError, match=r"tk\.explain\(\) lists"):
        tk.explain("race")
    assert all(code in str(tk.explain()) for code in CODES)
    assert "`TK500`" in tk.explain()._repr_markdown_()
    assert "```" not in str(tk.explain("TK210"))
    assert tk.explain("TK210")._repr_markdown_().startswith("### TK210")


def test_an_error_in_a_notebook_says_where_more_is_told() -> None:
    with pytest.raises(tk.TkError) as e:
        tk.kernel(threads=0)
    assert e.value._render_traceback_()[-1] == '  more: tk.explain("TK407")'


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TK210"]) == 0
    assert capsys.readouterr().out.startswith("TK210: shapes do not match\n")
    assert main(["explain"]) == 0
    assert "TK600" in capsys.readouterr().out
    assert main(["explain", "TK219"]) == 2
    assert "did you mean TK210" in capsys.readouterr().err
