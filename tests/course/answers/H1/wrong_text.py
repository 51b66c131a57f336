# words: is not it
import tklearn as tk

tk.predict("H1", a="C", b="the first", c="B", d="C", e="A")
