# words: each of the products takes its time
import tklearn as tk

tk.predict("P5", one=3600, two=1400, three=1600, first=400)
