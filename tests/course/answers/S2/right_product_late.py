order = ["c", "i", "f", "a", "h", "b", "e"]
