# words: a coordinate counts tiles
import tklearn as tk

tk.predict("H1", a="C", b="A", c="B", d="C", e="A")
