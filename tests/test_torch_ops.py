"""Kernels as torch operators, on CPU tensors (the simulator) and, marked gpu, on a GPU."""

import numpy as np
import pytest

import tklearn as tk
from tklearn import blockIdx, warp, warpid

torch = pytest.importorskip("torch")


@tk.kernel(warps=4)
def scaled_exp(x: tk.gl_fl, y: tk.gl_fl, a: tk.f32):
    t = tk.rt_fl(16, 32)
    warp.load(t, x, (blockIdx.x * 4 + warpid(), blockIdx.y))
    t = tk.exp(t * a)
    warp.store(y, t, (blockIdx.x * 4 + warpid(), blockIdx.y))


@tk.kernel(warps=4)
def scaled_exp_grad(g: tk.gl_fl, y: tk.gl_fl, dx: tk.gl_fl, a: tk.f32):
    at = (blockIdx.x * 4 + warpid(), blockIdx.y)
    t = tk.rt_fl(16, 32)
    u = tk.rt_fl(16, 32)
    warp.load(t, g, at)
    warp.load(u, y, at)
    t *= u
    t *= a
    warp.store(dx, t, at)


def grid(x):
    return (x.shape[0] + 63) // 64, (x.shape[1] + 31) // 32


def exp_forward(x: torch.Tensor, a: float) -> torch.Tensor:
    y = torch.empty_like(x)
    scaled_exp[grid(x)](x, y, a)
    return y


def exp_backward(grads, inputs, outputs):
    (g,), (_, a), (y,) = grads, inputs, outputs
    dx = torch.empty_like(y)
    scaled_exp_grad[grid(y)](g, y, dx, a)
    return dx


op = tk.torch_op(exp_forward, exp_backward, name="scaled_exp_test")


def sample(device: str = "cpu", rows: int = 5, cols: int = 7) -> torch.Tensor:
    values = np.random.default_rng(0).standard_normal((rows, cols)) * 0.5
    return torch.tensor(values, dtype=torch.float32, device=device, requires_grad=True)


def check_all(device: str) -> None:
    x = sample(device)
    torch.testing.assert_close(op(x, 0.5), torch.exp(x * 0.5), rtol=2e-6, atol=1e-6)
    torch.library.opcheck(op, (x, 0.5))
    assert torch.autograd.gradcheck(
        lambda t: op(t, 0.5), (x,), eps=1e-2, atol=2e-3, rtol=2e-3, nondet_tol=0.0
    )

    def use(t):
        return (op(t * 2.0, 0.5) + 1.0).sum()

    compiled = torch.compile(use, fullgraph=True, backend=backend(device))
    y = sample(device)
    compiled(y).backward()
    use(x).backward()
    torch.testing.assert_close(y.grad, x.grad)


def backend(device: str) -> str:
    """inductor needs a C++ compiler on the CPU; aot_eager traces the same graph without one."""
    return "inductor" if device == "cuda" else "aot_eager"


def test_the_operator_passes_torchs_own_checks() -> None:
    check_all("cpu")


@pytest.mark.gpu
def test_on_the_gpu() -> None:
    check_all("cuda")


def test_without_a_gradient_backward_says_so() -> None:
    plain = tk.torch_op(exp_forward, name="scaled_exp_plain")
    with pytest.raises(RuntimeError):
        plain(sample(), 1.0).sum().backward()


def test_parameters_need_annotations() -> None:
    def bare(x):
        return x

    with pytest.raises(tk.LaunchError, match="parameter 'x' of bare needs an annotation"):
        tk.torch_op(bare)


def test_a_wrong_number_of_gradients_is_named() -> None:
    broken = tk.torch_op(exp_forward, lambda g, i, o: (g[0], g[0]), name="scaled_exp_broken")
    with pytest.raises(tk.LaunchError, match="gives 2 gradients for 1 tensors"):
        broken(sample(), 1.0).sum().backward()


def test_a_tensor_that_requires_grad_is_refused_outside_an_operator() -> None:
    x = sample()
    with pytest.raises(tk.LaunchError, match="requires grad") as e:
        scaled_exp[grid(x)](x, torch.empty(5, 7), 1.0)
    assert e.value.code == "TK406"
