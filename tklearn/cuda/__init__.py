"""Machine 2: the IR as readable CUDA C++, compiled with NVRTC and launched on the GPU."""
