import tklearn as tk

tk.predict("P5", one=4800, two=2600, three=2000, first=400)
