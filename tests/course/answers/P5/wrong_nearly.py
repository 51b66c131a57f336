# words: is not it
import tklearn as tk

tk.predict("P5", one=3643, two=2000, three=1600, first=400)
