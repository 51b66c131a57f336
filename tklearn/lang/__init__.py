"""What a kernel may say: types, layouts, the op table, the front end, the typed IR.

Knows Python source and the language; knows neither machine. Imports the standard library, and
NumPy in layouts and plans.
"""
