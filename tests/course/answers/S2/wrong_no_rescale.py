# words: never scaled down
order = ["c", "f", "i", "h", "b", "e"]
