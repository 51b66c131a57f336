# words: names no line yet
order = []
