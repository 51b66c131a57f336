# words: the scores themselves are multiplied by V
order = ["c", "i", "a", "b", "f", "h", "e"]
