"""The stored notebooks about what is seen: executed, with pictures that have words, and small."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NAMES = ("03_banks_padding_swizzle", "04_tiles_layouts_tensor_cores", "05_pipelines")


class Images(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.alts: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        if tag == "img":
            self.alts.append(dict(attrs).get("alt") or "")
            self.sources.append(dict(attrs)["src"] or "")


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs(name) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    book = json.loads(path.read_text(encoding="utf-8"))
    page = Images()
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["execution_count"], "a cell was not run"
        for out in cell["outputs"]:
            assert out["output_type"] != "error"
            data = out.get("data", {})
            assert "application/vnd.jupyter.widget-view+json" not in data, "a widget without model"
            page.feed("".join(data.get("text/html", "")))
    assert len(page.alts) >= 7
    assert all(len(alt) > 60 for alt in page.alts)
    assert all(src.startswith("data:image/png;base64,") for src in page.sources)
    assert path.stat().st_size < 600_000


@pytest.mark.parametrize("name", NAMES)
def test_a_page_made_from_it_has_the_pictures(name) -> None:
    """As HTML, without a kernel: pictures, and nothing where a widget was."""
    html = pytest.importorskip("nbconvert").HTMLExporter()
    path = NOTEBOOKS / f"{name}.ipynb"
    text, _ = html.from_filename(str(path))
    stored = Images()
    stored.feed(text)
    pictures = [s for s in stored.sources if s.startswith("data:image/png;base64,")]
    assert len(pictures) >= 7
    widgets = path.read_text(encoding="utf-8").count(".widget()")
    assert text.count('<div id="tk-still-') == widgets >= 1
    assert "widget-view" not in text.split("<body", 1)[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_reader_predicts_before_it_is_shown(name) -> None:
    book = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    text = "".join("".join(c["source"]) for c in book["cells"])
    assert text.count("**Predict") >= 3
