# words: nothing is missing there
import tklearn as tk

tk.predict("P2", a="depends", b="fail", c="reported")
