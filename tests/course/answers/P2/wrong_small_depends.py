# words: there is one tile
import tklearn as tk

tk.predict("P2", a="depends", b="depends", c="reported")
