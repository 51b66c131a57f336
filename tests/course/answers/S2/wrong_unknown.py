# words: there is no line 'z'
order = ["c", "f", "i", "h", "a", "b", "z"]
