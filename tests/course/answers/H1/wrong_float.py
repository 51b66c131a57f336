# words: a whole number in Python
import tklearn as tk

tk.predict("H1", a="C", b="C", c="B", d="B", e="A")
