# words: not each step waits for a whole copy
import tklearn as tk

tk.predict("P5", one=3600, two=2600, three=1600, first=400)
