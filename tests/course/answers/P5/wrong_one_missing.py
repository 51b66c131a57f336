# words: no prediction for three
import tklearn as tk

tk.predict("P5", one=3600, two=2000, first=400)
