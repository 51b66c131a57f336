# words: products take time
import tklearn as tk

tk.predict("P5", one=3200, two=2600, three=2000, first=400)
