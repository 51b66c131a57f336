# words: still share sectors
import tklearn as tk

tk.predict("P1", a=4, b=32, c=32)
