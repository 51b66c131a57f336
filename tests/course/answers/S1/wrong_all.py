# words: line c does not belong
order = ['a', 'b', 'c', 'd', 'e', 'f', 'g']
