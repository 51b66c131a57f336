order = ["c", "i", "e", "a", "f", "h", "b"]
