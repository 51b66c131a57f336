# words: no room for the next tile
import tklearn as tk

tk.predict("P5", one=1600, two=2000, three=1600, first=400)
