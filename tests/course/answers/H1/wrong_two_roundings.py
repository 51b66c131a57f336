# words: rounded once
import tklearn as tk

tk.predict("H1", a="C", b="C", c="A", d="C", e="A")
