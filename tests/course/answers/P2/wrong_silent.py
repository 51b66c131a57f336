# words: do not compare numbers
import tklearn as tk

tk.predict("P2", a="depends", b="pass", c="not reported")
