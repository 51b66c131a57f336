order = ["c", "i", "a", "f", "b", "e", "h"]
