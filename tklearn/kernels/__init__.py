"""The gallery: kernels to read, to run on either machine, and to start from.

Each module has its kernels; `run(*arrays, **options)`, which checks the arrays, makes room for the
result in the caller's library and on its device, chooses the grid and launches; and
`reference(...)`, the same in plain NumPy. Options of every `run`: `out=` an array for the result,
`report=True` to get (result, report), and the simulator's (`check=`, `schedule=`, ...), which also
choose the simulator.

`gemm_hopper`, `attention_hopper` and `linear_attention` use TMA and warpgroups: on a GPU they need
an sm_90a (H100, H200), in the simulator they run anywhere.
"""
