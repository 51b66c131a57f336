# words: a line stands twice
order = ['b', 'b', 'e', 'd', 'a', 'g']
