import tklearn as tk

tk.predict("P2", a="Depends", b="PASS", c="Reported")
