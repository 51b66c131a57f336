# words: the scores themselves are summed
order = ["c", "i", "a", "h", "f", "b", "e"]
