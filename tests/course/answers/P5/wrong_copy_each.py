# words: under way together
import tklearn as tk

tk.predict("P5", one=4800, two=3400, three=2000, first=400)
