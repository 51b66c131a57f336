# words: not a third
import tklearn as tk

tk.predict("P5", one=4800, two=2600, three=1600, first=400)
