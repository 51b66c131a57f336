# words: the other way round
import tklearn as tk

tk.predict("P4", lane=15, register=2, row=14, shared_by=4, b_lane=19)
