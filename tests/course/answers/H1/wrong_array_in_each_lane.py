# words: every lane a whole
import tklearn as tk

tk.predict("H1", a="B", b="C", c="B", d="C", e="A")
