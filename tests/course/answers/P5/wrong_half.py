# words: do not halve the time
import tklearn as tk

tk.predict("P5", one=4800, two=2400, three=2000, first=400)
