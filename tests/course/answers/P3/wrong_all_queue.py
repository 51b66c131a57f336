# words: all banks answer at once
import tklearn as tk

tk.predict("P3", a=32, b=32, c=32, d=32, e=32, f=32)
