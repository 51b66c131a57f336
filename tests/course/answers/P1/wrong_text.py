# words: is not it
import tklearn as tk

tk.predict("P1", a="four", b=16, c=32)
