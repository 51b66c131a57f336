# words: multiple of 32 is always the same bank
import tklearn as tk

tk.predict("P3", a=1, b=4, c=1, d=1, e=1, f=4)
