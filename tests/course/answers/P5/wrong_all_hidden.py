# words: cannot hide all
import tklearn as tk

tk.predict("P5", one=3600, two=1600, three=1600, first=400)
