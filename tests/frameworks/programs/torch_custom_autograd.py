# needs: packages=torch
"""Autograd from Python: custom functions, hooks, double backward, vmap and functional transforms, registered operators."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return 3 * x * x * gradient


@torch.library.custom_op("tally_frameworks::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


scale.register_autograd(lambda ctx, gradient: (gradient * ctx.factor, None),
                        setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))

seed_torch()
digest = Digest()
x = torch.randn(1000, device="cuda", dtype=torch.double, requires_grad=True)
seen = []
x.register_hook(lambda gradient: seen.append(gradient.clone()))
y = Cube.apply(x)
(first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
digest.add("cube", y, first, second)
scale(y, 1.5).sum().backward()
digest.add("hooks", x.grad, *seen)
small = torch.randn(6, device="cuda", dtype=torch.double, requires_grad=True)
digest.add("gradient check", torch.autograd.gradcheck(Cube.apply, (small,)))


def energy(v):
    return (v.sin() * v.flip(0).cos()).sum()


v = torch.randn(12, device="cuda")
digest.add("functional", torch.func.grad(energy)(v), torch.func.hessian(energy)(v), torch.func.jvp(energy, (v,), (v,))[1])
digest.add("vmap", torch.func.vmap(torch.func.grad(energy))(torch.randn(40, 12, device="cuda")))
digest.print()
