"""The `tklearn` command: lab, run, doctor, bench, record, and those of the course.

This layer parses arguments and starts things; it knows no kernels. Every subcommand imports what
it needs when it is called, so that `tklearn doctor` works in an environment that lacks the rest.
Exit codes: 0 done, 1 the work failed, 2 the request cannot be carried out here.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FIRST_NOTEBOOK = Path("notebooks") / "00_one_kernel_two_machines.ipynb"

CELL_TIMEOUT_S = 300
"""Longest run of one notebook cell under `tklearn run`, in seconds."""


class CliError(Exception):
    """A request that cannot be carried out; its text is the one message that is printed."""


def checkout() -> Path:
    """The folder that holds notebooks/ and benchmarks/: above the package, or where we stand.

    Raises:
        CliError: neither holds the course (the package was installed without its repository).
    """
    for folder in (Path(__file__).resolve().parent.parent, Path.cwd()):
        if (folder / "notebooks").is_dir() or (folder / "course").is_file():
            return folder
    raise CliError(
        "no notebooks here: the course is not part of the package.\n"
        "Clone the repository and run ./course in it."
    )


def has_display(system: str, env: dict[str, str]) -> bool:
    """Whether a browser can be expected to open on this machine."""
    if env.get("SSH_CONNECTION") and not env.get("DISPLAY"):
        return False
    if system.startswith("linux"):
        return bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY") or env.get("WSL_INTEROP"))
    return True


def lab_command(
    root: Path, notebook: Path, *, display: bool, is_root: bool, extra: list[str]
) -> list[str]:
    """The JupyterLab command that serves `root` and opens `notebook` (relative to `root`)."""
    where = "/lab/tree/" + notebook.as_posix() if (root / notebook).is_file() else "/lab"
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    command += [f"--LabApp.default_url={where}"]
    # Jupyter prints its address at the highest level; below it are some forty lines of start-up.
    command += ["--log-level=WARN"]
    if is_root:
        command += ["--allow-root"]
    if not display:
        command += ["--no-browser"]
    return command + extra


def lab(args: argparse.Namespace, rest: list[str]) -> int:
    """Open the course in JupyterLab; serve and print the address where there is no display."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise CliError(
            "JupyterLab is not installed in this environment.\n"
            "Run ./course (python course on Windows), which installs and opens it."
        )
    root = checkout()
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    display = has_display(sys.platform, dict(os.environ))
    command = lab_command(root, Path(args.notebook), display=display, is_root=is_root, extra=rest)
    print("tklearn: starting JupyterLab; stop it with Ctrl-C.", flush=True)
    if not display:
        print("No display here: open the address below in a browser.", flush=True)
    if os.name == "posix":  # one process: signals and exit code are Jupyter's own
        os.chdir(root)
        os.execv(command[0], command)
    try:
        return subprocess.call(command, cwd=root)
    except KeyboardInterrupt:
        return 0


def doctor(args: argparse.Namespace, rest: list[str]) -> int:
    """Print what this machine can do and what will be left out."""
    from tklearn.doctor import Look, examine

    print(examine(Look()))
    return 0


def comparison_tables(notebook: Any) -> list[str]:
    """The plain texts in a notebook's outputs that are comparison tables.

    A table is an output with a line that names the predicted, simulated and measured columns.
    """
    texts: list[str] = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain") or ""
            text = "".join(text) if isinstance(text, list) else text
            columns = ("predicted", "simulated", "measured")
            if any(all(word in line for word in columns) for line in text.splitlines()):
                texts.append(text.rstrip())
    return texts


def _client(notebook: Any, folder: Path) -> Any:
    """An nbclient that prints its progress and polls the shell channel in short slices.

    nbclient sometimes waits out the whole cell timeout for a reply that has come already, in
    cells with ipywidgets outputs (nbclient issue 312); asking again in slices cures it.
    """
    from nbclient import NotebookClient
    from nbclient.util import ensure_async, run_sync

    class Slices:
        """The shell channel, with `get_msg` cut into slices of 0.25 s."""

        def __init__(self, channel: Any) -> None:
            self._channel = channel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._channel, name)

        async def get_msg(self, timeout: float | None = None) -> Any:
            from queue import Empty

            end = None if timeout is None else time.monotonic() + timeout
            while True:
                try:
                    return await ensure_async(self._channel.get_msg(timeout=0.25))
                except Empty:
                    if end is not None and time.monotonic() >= end:
                        raise
                    await asyncio.sleep(0)

    class Client(NotebookClient):
        async def async_start_new_kernel_client(self) -> Any:
            kc = await super().async_start_new_kernel_client()
            kc._shell_channel = Slices(kc.shell_channel)
            return kc

        start_new_kernel_client = run_sync(async_start_new_kernel_client)

    codes = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]

    def progress(cell: Any, cell_index: int) -> None:
        if cell_index in codes:
            first = (cell.source.strip().splitlines() or [""])[0]
            done = codes.index(cell_index) + 1
            print(f"  cell {done:2d}/{len(codes)}  {first[:70]}", file=sys.stderr, flush=True)

    return Client(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=progress,
        # ipykernel warns that its sockets on this machine are not encrypted: noise here.
        extra_arguments=["--log-level=ERROR"],
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Execute a notebook without a browser and print the comparison tables in its outputs."""
    for package in ("nbclient", "nbformat", "ipykernel"):
        if importlib.util.find_spec(package) is None:
            raise CliError(f"{package} is not installed in this environment; run ./course run")
    import nbformat
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    path = Path(args.notebook) if args.notebook else checkout() / FIRST_NOTEBOOK
    if not path.is_file():
        raise CliError(f"there is no notebook {path}")
    notebook = nbformat.read(path, as_version=4)
    started = time.monotonic()
    print(f"tklearn: executing {path.name}", file=sys.stderr, flush=True)
    try:
        _client(notebook, path.resolve().parent).execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        print(f"{path.name} failed:\n{error}", file=sys.stderr)
        return 1
    print(f"done in {time.monotonic() - started:.1f} s\n", file=sys.stderr, flush=True)
    if args.output:
        nbformat.write(notebook, args.output)
    tables = comparison_tables(notebook)
    if not tables:
        print(f"{path.name} ran, but no output holds a comparison table.", file=sys.stderr)
        return 1
    print("\n\n".join(tables))
    return 0


def bench(args: argparse.Namespace, rest: list[str]) -> int:
    """Run one of benchmarks/*.py, or list them."""
    folder = checkout() / "benchmarks"
    names = sorted(p.stem for p in folder.glob("*.py") if not p.stem.startswith("_"))
    if args.name is None:
        print("benchmarks: " + (", ".join(names) or "none in this version"))
        return 0
    if args.name not in names:
        raise CliError(
            f"there is no benchmark {args.name!r}; there are: {', '.join(names) or 'none'}"
        )
    return subprocess.call([sys.executable, str(folder / f"{args.name}.py"), *rest])


def record(args: argparse.Namespace, rest: list[str]) -> int:
    """Measure the gallery on this machine's GPU and write tklearn/recorded/*.json."""
    from tklearn.record import main

    return main(rest)


def explain(args: argparse.Namespace, rest: list[str]) -> int:
    """Print the page of an error code, or the list of all codes."""
    from tklearn import explained
    from tklearn.lang.errors import TkError

    if args.docs:
        explained.write_docs(args.docs)
        return 0
    try:
        print(explained.explain(args.code))
    except TkError as error:
        raise CliError(f"{error.message}; {error.hint}") from None
    return 0


def version() -> str:
    """The installed version, or a word that says why there is none."""
    try:
        return importlib.metadata.version("tklearn")
    except importlib.metadata.PackageNotFoundError:
        return "not installed (run from its folder)"


def parser() -> argparse.ArgumentParser:
    """The argument parser; subcommands that do not exist yet are not listed."""
    from tklearn.course import commands as course

    top = argparse.ArgumentParser(
        prog="tklearn", description="GPU kernels in tiles: one Python kernel, two machines."
    )
    top.add_argument("--version", action="version", version=f"tklearn {version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    sub = commands.add_parser("lab", help="open the course in JupyterLab")
    sub.add_argument("notebook", nargs="?", default=str(FIRST_NOTEBOOK))
    sub.set_defaults(call=lab)

    sub = commands.add_parser("run", help="execute a notebook headless, print its comparison")
    sub.add_argument("notebook", nargs="?", help=f"default: {FIRST_NOTEBOOK.as_posix()}")
    sub.add_argument("--output", metavar="FILE", help="also write the executed notebook here")
    sub.set_defaults(call=run)

    sub = commands.add_parser("doctor", help="what this machine can do, what will be skipped")
    sub.set_defaults(call=doctor)

    sub = commands.add_parser("bench", help="run a benchmark, or list them")
    sub.add_argument("name", nargs="?")
    sub.set_defaults(call=bench)

    sub = commands.add_parser("record", help="measure on this GPU into tklearn/recorded/")
    sub.set_defaults(call=record)

    sub = commands.add_parser("explain", help="what an error code means and what to do")
    sub.add_argument("code", nargs="?", metavar="CODE", help="as TK210; without it, all codes")
    sub.add_argument("--docs", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    sub.set_defaults(call=explain)

    course.add(commands)
    return top


def main(argv: list[str] | None = None) -> int:
    """Entry point of the `tklearn` command. Returns the exit code.

    Arguments that the subcommand does not know go on to what it starts (lab, bench, record).
    """
    args, rest = parser().parse_known_args(argv)
    if rest and args.call not in (lab, bench, record):
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return int(args.call(args, rest))
    except CliError as error:
        print(f"tklearn {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    from tklearn.cli import main as of_the_module  # whose CliError is the one that is raised

    sys.exit(of_the_module())
