# words: each lane owns two
import tklearn as tk

tk.predict("P4", lane=15, register=2, row=14, shared_by=8, b_lane=26)
