# words: what no line has made yet
order = ["f", "c", "i", "h", "a", "b", "e"]
