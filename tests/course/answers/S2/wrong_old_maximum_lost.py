# words: replaced before `keep` has looked
order = ["c", "e", "f", "i", "h", "a", "b"]
