# words: no prediction for e
import tklearn as tk

tk.predict("H1", a="C", b="C", c="B", d="C")
