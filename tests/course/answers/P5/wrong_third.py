# words: not a third
import tklearn as tk

tk.predict("P5", one=3600, two=2000, three=1200, first=400)
