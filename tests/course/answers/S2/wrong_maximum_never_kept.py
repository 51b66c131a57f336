# words: never replaced
order = ["c", "f", "i", "h", "a", "b"]
