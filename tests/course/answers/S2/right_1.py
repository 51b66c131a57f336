order = ["c", "f", "i", "h", "a", "b", "e"]
