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
