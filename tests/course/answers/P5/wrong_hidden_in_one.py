# words: no room for the next tile
import tklearn as tk

tk.predict("P5", one=2000, two=2600, three=2000, first=400)
