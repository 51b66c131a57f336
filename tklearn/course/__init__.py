"""The course: exercises checked in the page."""

from tklearn.course.check import Verdict, check, hint, predict

__all__ = ["Verdict", "check", "hint", "predict"]
