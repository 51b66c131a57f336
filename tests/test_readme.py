"""README's first screen works when pasted, and its picture is there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_program_runs(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", TEXT, re.S)
    assert code
    file = tmp_path / "first.py"
    file.write_text(code.group(1))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"1,048,576 +9 +warp\.load\(row, x, at\)", done.stdout)
    assert "warp::load(row" in done.stdout
    assert "predicted | simulated | measured (recorded on" in done.stdout, "no recording fits"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([\w./-]+)\)", TEXT):
        assert (ROOT / target).exists(), target


RUNNING = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


def test_the_page_on_running_kernels_runs(tmp_path: Path) -> None:
    """Its blocks, one after the other: the fault that it shows is found."""
    file = tmp_path / "page.py"
    file.write_text("\n".join(re.findall(r"```python\n(.*?)```", RUNNING, re.S)))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "TK500 warp 0 reads part[1]" in done.stdout
    assert "scale_launch.cu" in done.stdout


def test_the_page_on_running_kernels_names_every_option() -> None:
    from tklearn.kernel import SIM_OPTIONS

    for option in SIM_OPTIONS:
        assert f"`{option}=" in RUNNING or f"`{option}=n)" in RUNNING or f"{option}=n" in RUNNING
