# words: no guard is inserted
import tklearn as tk

tk.predict("H1", a="C", b="C", c="C", d="C", e="A")
