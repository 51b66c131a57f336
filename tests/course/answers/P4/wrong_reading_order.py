# words: this is reading order
import tklearn as tk

tk.predict("P4", lane=23, register=2, row=14, shared_by=4, b_lane=26)
