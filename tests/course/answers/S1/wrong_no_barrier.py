# words: whole block must meet
order = ['b', 'd', 'a', 'g']
