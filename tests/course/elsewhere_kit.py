"""Environments like Colab's and VS Code's, and notebooks executed in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NO_NETWORK = re.compile("NewConnectionError|ConnectTimeout|ProxyError|Max retries exceeded")
# Nothing is compiled that is never imported, and no debugger looks for its own files.
QUICK = {"PIP_NO_COMPILE": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}

# What Colab's kernel holds before the first cell: anywidget asks it to show widgets.
COLAB = """
import sys, types
google, colab, output = (types.ModuleType(n) for n in ("google", "google.colab", "output"))
google.colab, colab.output = colab, output
output.asked, output._widgets = [], types.SimpleNamespace(_installed_url=None)
output.enable_custom_widget_manager = lambda: output.asked.append(1)
sys.modules.update({"google": google, "google.colab": colab, "google.colab.output": output})
"""


def first_cell(notebook: Path) -> str:
    """The text of a notebook's first code cell."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return next("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def pip(python: str | Path, *args: str | Path) -> None:
    """Runs this environment's pip for another Python; skips the test where there is no network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), *map(str, args), "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and NO_NETWORK.search(done.stderr):
        pytest.skip("no network")
    assert done.returncode == 0, done.stderr


class Elsewhere:
    """An environment of its own, and notebooks executed by its kernel.

    packages: pip's arguments. first: what its kernel runs first. env: variables of its kernels.
    """

    def __init__(self, folder: Path, packages: Iterable[str], first: str = "", **env: str) -> None:
        venv.create(folder, with_pip=False, symlinks=os.name != "nt")
        self.python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        pip(self.python, "install", "--no-compile", *packages)
        self.specs = folder / "specs"
        start = f"{first}\nfrom ipykernel.kernelapp import launch_new_instance as start\nstart()"
        spec = {
            "argv": [str(self.python), "-c", start, "-f", "{connection_file}"],
            "display_name": "elsewhere",
            "language": "python",
            "env": {**env, **QUICK},
        }
        (self.specs / "elsewhere").mkdir(parents=True)
        (self.specs / "elsewhere" / "kernel.json").write_text(json.dumps(spec))

    def versions(self) -> dict[str, str]:
        """The installed packages."""
        code = (
            "import importlib.metadata as m, json;"
            "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
        )
        return json.loads(subprocess.check_output([self.python, "-c", code], cwd=self.specs))

    def run(self, notebook: Path | list[str], cwd: Path) -> Any:
        """Executes a notebook, or cells of these texts, in a folder; the notebook with outputs.

        Errors: nbclient's CellExecutionError where a cell fails.
        """
        if isinstance(notebook, Path):
            book = nbformat.read(notebook, as_version=4)
        else:
            cells = [nbformat.v4.new_code_cell(text) for text in notebook]
            book = nbformat.v4.new_notebook(cells=cells)
        specs = KernelSpecManager(kernel_dirs=[str(self.specs)])
        km = KernelManager(kernel_name="elsewhere", kernel_spec_manager=specs)
        where = {"metadata": {"path": str(cwd)}}
        try:
            NotebookClient(book, km=km, timeout=400, resources=where).execute()
        finally:
            km.shutdown_kernel(now=True)
        return book


def outputs(book: Any, mime: str) -> list[str]:
    """The outputs of a notebook that have this form, as text; "" for what is printed."""
    found = []
    for cell in book.cells:
        for out in cell.get("outputs", []):
            data = out.get("data", {"": out.get("text", "")})
            found += [str(data[mime])] if mime in data else []
    return found
