# words: this is a copy for every step
import tklearn as tk

tk.predict("P5", one=3600, two=2400, three=1600, first=400)
