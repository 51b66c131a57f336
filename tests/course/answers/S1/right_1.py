order = ['b', 'e', 'd', 'a', 'g']
