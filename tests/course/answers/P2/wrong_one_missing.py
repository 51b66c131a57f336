# words: no prediction for c
import tklearn as tk

tk.predict("P2", a="depends", b="pass")
