# words: line f does not belong here
order = ['b', 'f', 'd', 'a', 'g']
