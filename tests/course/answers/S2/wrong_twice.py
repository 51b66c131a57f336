# words: a line stands twice
order = ["c", "c", "f", "i", "h", "a", "b", "e"]
