# words: cannot hide all
import tklearn as tk

tk.predict("P5", one=4800, two=2000, three=2000, first=400)
