# words: known only after the last tile
order = ["c", "f", "i", "h", "a", "b", "g", "e"]
