# words: 4 bytes times 32 lanes
import tklearn as tk

tk.predict("P1", a=1, b=16, c=32)
