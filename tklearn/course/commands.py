"""The course's part of the `tklearn` command: check, reset, progress; and a class's."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tklearn.course import class_commands


def add(commands: Any) -> None:
    """Adds the subcommands to the parser of cli.py."""
    sub = commands.add_parser("check", help="check an exercise's notebook without running it; kept")
    sub.add_argument("item", metavar="ID")
    sub.add_argument("file", nargs="?", help="default: its notebook in exercises/")
    sub.set_defaults(call=check)

    sub = commands.add_parser("hint", help="the next hint of an exercise")
    sub.add_argument("item", metavar="ID")
    sub.set_defaults(call=hint)

    sub = commands.add_parser("reset", help="an exercise as it was; your attempt is kept beside it")
    sub.add_argument("item", metavar="ID")
    sub.set_defaults(call=reset)

    sub = commands.add_parser("progress", help="what you have solved so far")
    told = "write it as a page to read, print and keep (default: result.html)"
    sub.add_argument("--page", nargs="?", const="", metavar="FILE", help=told)
    sub.set_defaults(call=progress)

    sub = commands.add_parser("key", help="the answer key, for instructors")
    sub.add_argument("-o", "--output", metavar="FILE", help="default: print it")
    sub.add_argument("--seed", type=int, default=0, help="of a learner's predictions")
    sub.set_defaults(call=key)

    class_commands.add(commands)


def _item(name: str) -> Any:
    from tklearn.cli import CliError
    from tklearn.course.check import find
    from tklearn.lang.errors import TkError

    try:
        return find(name)
    except TkError as e:
        raise CliError(f"{e.message}: {e.hint}") from None


def check(args: argparse.Namespace, rest: list[str]) -> int:
    """Check a file: 0 passed, 1 not yet."""
    from tklearn.cli import CliError, checkout
    from tklearn.course import attempts
    from tklearn.course.check import from_file
    from tklearn.course.extract import Refused
    from tklearn.course.extract import from_file as read

    it = _item(args.item)
    root = attempts.course() or checkout()
    path = Path(args.file) if args.file else root / "exercises" / it.file
    if not args.file and not path.is_file():
        raise CliError(
            f"{path} is not there: was it renamed or moved? Name the file: tklearn check {it.id} "
            f"FILE. `tklearn reset {it.id}` puts it there again"
        )
    try:
        verdict = from_file(it.id, read(path))
    except Refused as e:
        raise CliError(str(e)) from None
    print(verdict)
    if verdict.tried:
        print(f"(kept as an attempt in {attempts.folder() / attempts.NAME})")
    return 0 if verdict.passed else 1


def hint(args: argparse.Namespace, rest: list[str]) -> int:
    """Print the hints so far and the next one."""
    from tklearn.course.check import hint as told

    print(told(_item(args.item).id))
    return 0


def reset(args: argparse.Namespace, rest: list[str]) -> int:
    """Restore an exercise and keep the attempt beside it."""
    from tklearn.cli import CliError, checkout
    from tklearn.course import attempts, release

    it = _item(args.item)
    root = attempts.course() or checkout()
    text = release.original(it.file, root)
    if text is None:
        raise CliError(f"the original of exercises/{it.file} is not here")
    path = root / "exercises" / it.file
    if path.is_file():
        kept = path.with_name(f"{path.stem}.attempt-{time.strftime('%Y%m%d-%H%M%S')}.ipynb")
        n = 1
        while kept.exists():
            n += 1
            kept = kept.with_name(f"{kept.stem}-{n}.ipynb")
        path.rename(kept)
        print(f"your attempt is kept as exercises/{kept.name}")
    release.write(path, text)
    attempts.add(it.id, "reset")
    print(f"exercises/{it.file} is as it was; if it is open, close it and open it again")
    return 0


def progress(args: argparse.Namespace, rest: list[str]) -> int:
    """Print a line for each exercise; with --page, write the one-page result."""
    from tklearn.cli import CliError
    from tklearn.course import result
    from tklearn.course.progress import Progress

    print(Progress.now())
    if args.page is not None:
        try:
            path = result.write(Path(args.page) if args.page else None)
        except OSError as e:
            raise CliError(f"the page cannot be written: {e}") from None
        print(f"the page: {path}")
    return 0


def key(args: argparse.Namespace, rest: list[str]) -> int:
    """Print the answer key, or write it to a file."""
    from tklearn.cli import CliError, checkout
    from tklearn.course.key import key as made
    from tklearn.course.release import BadSolution, write

    try:
        text = made(checkout(), args.seed)
        if args.output:
            write(Path(args.output), text)
        else:
            print(text, end="")
    except BadSolution as e:
        raise CliError(str(e)) from None
    except OSError as e:
        raise CliError(f"{e.filename}: {e.strerror}") from None
    return 0
