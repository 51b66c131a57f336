"""Grading on a Dask cluster: the same results, and a worker that dies costs nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from class_kit import cells, computing, put, zipped

from tklearn.course import grade

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
pytestmark = pytest.mark.sandbox


def test_a_cluster_of_processes(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    for i in range(8):
        stem = ("right_range", "wrong_half_way")[i % 2]
        put(folder, f"{i}.zip", zipped(cells(M1=stem, P3="right_1")))
    put(folder, "evil.zip", zipped(cells(M1=computing("import ctypes\nctypes.string_at(0)"))))
    put(folder, "broken.zip", b"PK")
    said: list[str] = []
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        first = next(iter(cluster.workers.values()))

        def kill() -> None:
            while not said:
                time.sleep(0.01)
            os.kill(first.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        results = grade.grade_folder(
            folder, tmp_path / "out", scheduler=cluster.scheduler_address, seed=7,
            told=said.append,
        )  # fmt: skip
        killer.join(10)
    assert len(results) == 10
    by = {r["name"]: r for r in results}
    for i in range(8):
        m1 = by[f"{i}.zip"]["items"]["M1"]
        assert (m1["passed"], m1["score"]) == ((True, 3.0) if i % 2 == 0 else (False, 0.0))
    assert not by["evil.zip"]["items"]["M1"]["passed"]
    assert "damaged" in by["broken.zip"]["problem"]
    lines = (tmp_path / "out" / "journal.jsonl").read_text("utf-8").splitlines()
    assert sorted(json.loads(x)["name"] for x in lines) == sorted(by)
    here = grade.grade_folder(folder, tmp_path / "here", jobs=1, seed=7, told=said.append)
    strip = [json.dumps(r, sort_keys=True) for r in (*results, *here)]
    assert strip[:10] == strip[10:], "a cluster and this machine give the same"


def test_no_scheduler_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "ANSWERS", 1.0)
    put(tmp_path / "class", "a.zip", b"PK")
    with pytest.raises(grade.Problem, match="no Dask scheduler answers"):
        grade.grade_folder(
            tmp_path / "class", tmp_path / "out", scheduler="tcp://127.0.0.1:9", told=lambda _: None
        )
