# words: there is no line 'z'
order = ['b', 'e', 'd', 'a', 'z']
