# words: two stages are not twice as quick
import tklearn as tk

tk.predict("P5", one=3600, two=1800, three=1600, first=400)
