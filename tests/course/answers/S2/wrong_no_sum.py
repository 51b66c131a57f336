# words: nothing is added to `total`
order = ["c", "f", "i", "a", "b", "e"]
