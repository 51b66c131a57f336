# words: belong|made yet|not defined
order = ["a", "b", "c", "d", "e", "f", "g", "h", "i"]
