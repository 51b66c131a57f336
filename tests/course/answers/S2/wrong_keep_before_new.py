# words: what no line has made yet
order = ["i", "c", "f", "h", "a", "b", "e"]
