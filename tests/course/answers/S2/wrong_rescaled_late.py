# words: comes after this tile was added
order = ["c", "f", "i", "h", "b", "a", "e"]
