# words: forgets the tiles before
order = ["d", "f", "i", "h", "a", "b", "e"]
