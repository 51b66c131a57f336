# words: there is no kernel
import tklearn as tk
from tklearn import block, blockIdx, laneid, threadIdx, warp, warpid

x = 1
