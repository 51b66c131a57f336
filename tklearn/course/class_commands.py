"""The class's part of the `tklearn` command: release, submit, grade, live."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """Adds the subcommands to the parser of cli.py."""
    sub = commands.add_parser("release", help="bundles for a class; or exercises/ from solutions/")
    sub.add_argument("--exercises", action="store_true", help="only make exercises/")
    sub.add_argument("-o", "--output", metavar="OUT", help="where the bundles and class.json go")
    sub.add_argument("--roster", metavar="CSV", help="the learners: a column id, and name, email")
    sub.add_argument("--seed", default="", help="of the class; default: a new secret")
    sub.add_argument("--wheels", action="store_true", help="also fill OUT/wheels for no network")
    sub.add_argument("--extra", action="append", default=[], metavar="NAME", help="with --wheels")
    sub.add_argument("--platform", action="append", default=[], help="with --wheels: win_amd64 ...")
    sub.add_argument("--python", default="", metavar="3.12", help="with --wheels")
    sub.set_defaults(call=release)

    sub = commands.add_parser("submit", help="write one file with your work, to hand in")
    sub.add_argument("folder", nargs="?", metavar="FOLDER", help="the course; default: this one")
    sub.add_argument("-o", "--output", metavar="FILE")
    sub.set_defaults(call=submit)

    sub = commands.add_parser("grade", help="grade a folder of submissions")
    sub.add_argument("folder", metavar="DIR")
    sub.add_argument("-o", "--output", metavar="OUT", required=True)
    sub.add_argument("--jobs", type=int, default=0, metavar="N", help="default: one for each core")
    sub.add_argument("--scheduler", default="", metavar="ADDRESS", help="of a Dask cluster")
    sub.add_argument("--class", dest="group", metavar="JSON", help="class.json of the release")
    sub.add_argument("--roster", metavar="CSV", help="the learners, for those of the release")
    sub.add_argument(
        "--column", default="tklearn", metavar="NAME",
        help="of the assignment, in moodle.csv and canvas.csv; in Canvas also 'NAME (ID)'",
    )  # fmt: skip
    sub.add_argument("--seed", type=int, help="of the hidden tests; default: secret, kept in OUT")
    sub.set_defaults(call=grade)

    sub = commands.add_parser("live", help="the instructor's page, while a class is held")
    sub.add_argument("--host", default="0.0.0.0", help="default: the local network")
    sub.add_argument("--port", type=int, default=8765)
    sub.add_argument("--token", default="", help="default: a new one")
    sub.add_argument("--file", type=Path, help="keep the reports here, over a restart")
    sub.set_defaults(call=live)


def release(args: argparse.Namespace, rest: list[str]) -> int:
    """Make bundles for a class, or exercises/ from solutions/."""
    from tklearn.cli import CliError, checkout
    from tklearn.course import handout, wheels
    from tklearn.course.release import BadSolution, make_exercises

    if args.exercises == bool(args.output):
        raise CliError("say what to make: --exercises, or -o OUT for a class's bundles")
    try:
        if args.exercises:
            changed = make_exercises(checkout())
            print(
                "\n".join(f"exercises/{n}" for n in changed) or "exercises/ is as solutions/ says"
            )
            return 0
        learners = _roster(args.roster)
        out = Path(args.output)
        handout.release(checkout(), out, learners, args.seed)
        if args.wheels:
            size = wheels.wheels(checkout(), out, args.extra, args.platform, args.python)
            print(f"{size / 2**20:.0f} MiB in {out / 'wheels'}: put this folder beside ./course")
    except (BadSolution, handout.Problem, wheels.Problem) as e:
        raise CliError(str(e)) from None
    except OSError as e:
        raise CliError(f"{e.filename}: {e.strerror}") from None
    return 0


def _roster(file: str | None) -> list[Any]:
    """The learners of a class list. Errors: CliError."""
    from tklearn.cli import CliError
    from tklearn.course import handout

    try:
        return handout.roster(Path(file).read_text(encoding="utf-8"), print) if file else []
    except handout.Problem as e:
        raise CliError(str(e)) from None
    except UnicodeDecodeError:
        raise CliError(f"{file} is not UTF-8: in Excel, save it as 'CSV UTF-8'") from None
    except OSError as e:
        raise CliError(f"{file}: {e.strerror}") from None


def submit(args: argparse.Namespace, rest: list[str]) -> int:
    """Write one file to hand in."""
    from tklearn.cli import CliError
    from tklearn.course.submit import submit as make
    from tklearn.lang.errors import TkError

    try:
        print(make(args.folder, args.output))
    except TkError as e:
        raise CliError(f"{e.message}: {e.hint}") from None
    except OSError as e:
        raise CliError(f"{e.filename}: {e.strerror}") from None
    return 0


def grade(args: argparse.Namespace, rest: list[str]) -> int:
    """Grade a folder."""
    from tklearn.cli import CliError
    from tklearn.course.grade import Problem, grade_folder

    try:
        results = grade_folder(
            Path(args.folder), Path(args.output), jobs=args.jobs, scheduler=args.scheduler,
            seed=args.seed, class_file=Path(args.group) if args.group else None,
            learners=_roster(args.roster), column=args.column,
            told=lambda text: print(text, flush=True),
        )  # fmt: skip
    except Problem as e:
        raise CliError(str(e)) from None
    except KeyboardInterrupt:
        raise CliError("stopped; run the same again to go on") from None
    lost = sum(bool(r.get("broken")) for r in results)
    bad = sum(bool(r["problem"]) for r in results) - lost
    print(f"{len(results)} submissions, {bad} of them unreadable: {args.output}/index.html")
    if lost:
        print(f"{lost} of {len(results)} are not graded (see above): run the same again")
    return 1 if lost else 0


def live(args: argparse.Namespace, rest: list[str]) -> int:
    """Serve the live page."""
    from tklearn.cli import CliError
    from tklearn.course.live import main

    try:
        return main(args.host, args.port, args.token, args.file)
    except ValueError as e:
        raise CliError(str(e)) from None
    except OSError as e:
        raise CliError(f"port {args.port} on {args.host}: {e.strerror}") from None
