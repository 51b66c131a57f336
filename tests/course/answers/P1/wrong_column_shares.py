# words: one to itself
import tklearn as tk

tk.predict("P1", a=4, b=16, c=8)
