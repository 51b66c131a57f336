# words: lies in registers
import tklearn as tk

tk.predict("H1", a="A", b="C", c="B", d="C", e="A")
