# words: lane: 16 is not it
import tklearn as tk

tk.predict("P4", lane=16, register=2, row=14, shared_by=4, b_lane=26)
