# words: which lane wants which number
import tklearn as tk

tk.predict("P1", a=32, b=16, c=32)
