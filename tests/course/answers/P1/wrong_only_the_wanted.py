# words: fetched as a whole
import tklearn as tk

tk.predict("P1", a=4, b=4, c=32)
