"""The course: exercises checked in the page. Uses tklearn's public names only."""

from tklearn.course.check import Verdict, check, hint

__all__ = ["Verdict", "check", "hint"]
