import tklearn as tk

tk.predict("P5", one=4857, two=2636, three=2053, first=406)
