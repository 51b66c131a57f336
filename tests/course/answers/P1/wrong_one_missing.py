# words: no prediction for c
import tklearn as tk

tk.predict("P1", a=4, b=16)
