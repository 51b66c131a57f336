# words: line c does not belong here
order = ['b', 'e', 'd', 'c', 'a', 'g']
