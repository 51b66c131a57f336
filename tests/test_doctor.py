"""`tklearn doctor` on made-up machines, and once on this one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tklearn.doctor import Diagnosis, Driver, Gpu, Look, ask_driver, examine, run_quick

H200 = ["NVIDIA H200", 90, 150_000_000_000]
GPU_WHEELS = {
    "cupy-cuda13x": "14.2.0",
    "nvidia-cuda-nvrtc": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
}
LEARNER = {"numpy": "2.5.5", "jupyterlab": "4.6.6", "anywidget": "0.11.0"}


def machine(
    packages: dict[str, str],
    *,
    driver: object = None,
    tools: tuple[str, ...] = (),
    system: str = "linux",
    recorded: Path = Path("nowhere"),
) -> Look:
    """A machine with these packages, these programs on PATH and this answer of the driver."""

    def run(command: list[str]) -> str | None:
        if command[0] == sys.executable:
            return json.dumps(driver if driver is not None else {"problem": "no driver"})
        if "nvidia-smi" in command[0]:
            return "580.65.06\n"
        return "Cuda compilation tools, release 13.0, V13.0.88\n"

    return Look(
        which=lambda name: f"/bin/{name}" if name in tools else None,
        run=run,
        version=packages.get,
        env={"OPENBLAS_NUM_THREADS": "1"},
        system=system,
        recorded=recorded,
    )


def cuda(version: int, *gpus: list[object], tma: bool = True) -> dict[str, object]:
    return {"version": version, "gpus": gpus, "problem": "", "tma": tma}


def skipped(diagnosis: Diagnosis) -> dict[str, str]:
    return {skip.what: f"{skip.why} {skip.remedy}" for skip in diagnosis.skips}


def test_a_laptop_without_a_gpu() -> None:
    found = examine(machine(LEARNER))
    assert found.can == "simulator"
    assert found.extra is None
    assert not found.compiles
    skips = skipped(found)
    assert "no NVIDIA driver" in skips["running on a GPU"]
    assert "./course --extra torch" in skips["torch examples"]
    assert "./course --extra numba" in skips['fast mma="exact"']
    assert "source() and show() work" in skips["compiling kernels"]
    assert "./course --extra dev" in skips["browser tests"]


def test_recordings_take_the_place_of_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "h200.json").write_text("{}")
    found = examine(machine(LEARNER, recorded=tmp_path))
    assert found.can == "simulator + recorded GPU numbers"
    assert "recordings" in skipped(found)["running on a GPU"]


def test_an_h200_with_everything() -> None:
    packages = LEARNER | GPU_WHEELS | {"torch": "2.13.0", "numba": "0.68.1", "playwright": "1.65.2"}
    tools = ("nvidia-smi", "nvcc", "chromium", "bwrap")
    found = examine(machine(packages, driver=cuda(13000, H200), tools=tools))
    assert found.can == "simulator + GPU"
    assert found.extra == "gpu"
    assert found.compiles
    assert found.skips == ()
    text = str(found)
    for part in ("NVIDIA H200, sm_90, 140 GiB", "CUDA 13.0", "release 580.65.06", "V13.0.88"):
        assert part in text
    assert "Left out" not in text


@pytest.mark.parametrize(
    ("version", "extra"), [(13010, "gpu"), (13000, "gpu"), (12080, "gpu12"), (11080, None)]
)
def test_the_driver_decides_the_extra(version: int, extra: str | None) -> None:
    found = examine(machine(LEARNER, driver=cuda(version, H200)))
    assert found.extra == extra
    assert found.can == "simulator"
    if extra:
        assert skipped(found)["compiling kernels"].endswith(f"./course --extra {extra}")
    else:
        assert "update the NVIDIA driver" in skipped(found)["running on the GPU"]


def test_nvrtc_newer_than_the_driver() -> None:
    found = examine(machine(LEARNER | GPU_WHEELS, driver=cuda(12080, H200)))
    assert found.can == "simulator"
    assert "newer than the driver's CUDA 12.8" in skipped(found)["running on the GPU"]
    assert "--extra gpu12" in skipped(found)["running on the GPU"]


def test_two_cupys() -> None:
    found = examine(machine(LEARNER | GPU_WHEELS | {"cupy-cuda12x": "14.2.0"}))
    assert "overwrite each other" in skipped(found)["CuPy"]


def test_an_old_gpu() -> None:
    found = examine(machine(LEARNER | GPU_WHEELS, driver=cuda(13000, ["Tesla V100", 70, 2**34])))
    assert found.can == "simulator"
    assert "sm_70 is older than sm_75" in skipped(found)["running on the GPU"]


def test_a_driver_without_a_device_and_a_broken_one() -> None:
    found = examine(machine(LEARNER, driver=cuda(13000)))
    assert "sees no GPU" in skipped(found)["running on a GPU"]
    broken = {"version": 13000, "gpus": [], "problem": "cuInit failed with code 803"}
    assert "code 803" in skipped(examine(machine(LEARNER, driver=broken)))["running on a GPU"]


def test_macos_and_windows() -> None:
    mac = examine(machine(LEARNER, system="darwin"))
    assert skipped(mac)["running on a GPU"].startswith("macOS has no CUDA")
    assert "--extra gpu" not in str(mac)
    windows = examine(machine(LEARNER, system="win32"))
    assert "python course --extra torch" in str(windows)


def test_a_silent_or_garbled_driver() -> None:
    silent = Look(run=lambda command: None, system="linux")
    assert "did not answer" in ask_driver(silent).problem
    garbled = Look(run=lambda command: "<html>", system="linux")
    assert "unreadable" in ask_driver(garbled).problem


def test_run_quick_gives_up() -> None:
    started = time.monotonic()
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    assert run_quick(sleeper, timeout_s=0.3) is None
    assert time.monotonic() - started < 10
    assert run_quick(["no-such-program-at-all"]) is None
    assert run_quick([sys.executable, "-c", "raise SystemExit(3)"]) is None
    assert run_quick([sys.executable, "-c", "print('hi')"]) == "hi\n"


@pytest.mark.parametrize(("driver", "words", "found"), [
    (cuda(13000, H200), "both (sm_90a", True),
    (cuda(11080, H200, tma=False), "no cuTensorMapEncodeTiled", False),
    (cuda(13000, ["A100", 80, 1]), "this is sm_80", False),
    (cuda(13000, ["B200", 100, 1]), "TMA yes, wgmma no: sm_100", True),
    (cuda(13000), "no GPU", False),
    ({"version": 13000, "gpus": [H200], "problem": ""}, "no cuTensorMapEncodeTiled", False),
])  # fmt: skip
def test_tma_and_wgmma_have_a_line(driver: dict, words: str, found: bool) -> None:
    facts = {f.name: f for f in examine(machine(LEARNER, driver=driver)).facts}
    assert words in facts["TMA, wgmma"].text
    assert facts["TMA, wgmma"].found == found


def test_extra_follows_gpus_and_version() -> None:
    gpu = Gpu("NVIDIA H200", 90, 1)
    assert Driver((13, 0), (gpu,)).extra == "gpu"
    assert Driver((12, 0), (gpu,)).extra == "gpu12"
    assert Driver((13, 0), ()).extra is None
    assert Driver(None, (gpu,)).extra is None


def test_one_screen_on_this_machine_without_importing_anything_heavy() -> None:
    code = (
        "import sys; from tklearn.doctor import Look, examine; text = str(examine(Look()));"
        "heavy = {'cupy', 'torch', 'matplotlib', 'jupyterlab'} & set(sys.modules);"
        "assert not heavy, heavy; print(text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert any(line.startswith("This machine can: simulator") for line in lines)
    for name in ("Python", "NumPy", "GPU", "CuPy", "NVRTC", "nvcc", "torch", "bubblewrap"):
        assert name in done.stdout


def test_tk_doctor_stays_a_function() -> None:
    """Importing the module tklearn.doctor later must not put it in the function's place."""
    code = (
        "import tklearn as tk; import tklearn.doctor; from tklearn.doctor import Diagnosis;"
        "assert isinstance(tk.doctor(), Diagnosis); assert isinstance(tk.doctor(), Diagnosis)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
