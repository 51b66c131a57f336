# words: nothing is multiplied by V|should be
order = ["c", "f", "i", "h", "a", "e"]
