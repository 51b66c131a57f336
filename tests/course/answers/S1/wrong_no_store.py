# words: nothing was stored
order = ['b', 'e', 'd', 'a']
