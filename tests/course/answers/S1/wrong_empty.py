# words: not done
order = []
