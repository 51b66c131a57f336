# words: zeros of warp.zero
order = ['b', 'e', 'd', 'g', 'a']
