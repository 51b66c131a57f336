order = ["c", "i", "a", "f", "h", "b", "e"]
