# words: passing once is luck
import tklearn as tk

tk.predict("P2", a="pass", b="pass", c="reported")
