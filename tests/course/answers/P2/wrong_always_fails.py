# words: a race is not always seen
import tklearn as tk

tk.predict("P2", a="fail", b="pass", c="reported")
