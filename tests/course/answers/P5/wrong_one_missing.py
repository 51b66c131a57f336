# words: no prediction for three
import tklearn as tk

tk.predict("P5", one=4800, two=2600, first=400)
