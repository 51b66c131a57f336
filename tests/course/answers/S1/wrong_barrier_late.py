# words: whole block must meet
order = ['b', 'd', 'e', 'a', 'g']
