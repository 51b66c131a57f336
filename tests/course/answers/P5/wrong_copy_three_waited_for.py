# words: it is there in time
import tklearn as tk

tk.predict("P5", one=3600, two=2000, three=2000, first=400)
