import tklearn as tk

tk.predict("H1", a="c", b="c", c="b", d="c", e="a")
