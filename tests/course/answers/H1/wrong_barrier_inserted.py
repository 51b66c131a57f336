# words: nothing is inserted
import tklearn as tk

tk.predict("H1", a="C", b="B", c="B", d="C", e="A")
