# words: 8 numbers, not 4
import tklearn as tk

tk.predict("P1", a=8, b=16, c=32)
