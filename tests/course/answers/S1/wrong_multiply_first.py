# words: something is read before
order = ['b', 'a', 'd', 'e', 'g']
