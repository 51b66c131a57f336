# words: is not it
import tklearn as tk

tk.predict("P2", a=1, b="pass", c="reported")
