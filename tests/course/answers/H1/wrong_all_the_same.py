# words: is not it
import tklearn as tk

tk.predict("H1", a="A", b="A", c="A", d="A", e="A")
