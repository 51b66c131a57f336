# words: nothing can hide the first copy
import tklearn as tk

tk.predict("P5", one=3600, two=2000, three=1600, first=0)
