# words: no prediction for register
import tklearn as tk

tk.predict("P4", lane=15, row=14, shared_by=4, b_lane=26)
