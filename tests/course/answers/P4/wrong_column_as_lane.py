# words: four lanes share a row
import tklearn as tk

tk.predict("P4", lane=30, register=2, row=14, shared_by=4, b_lane=26)
