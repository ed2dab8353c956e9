# needs: packages=torch
"""Random numbers: distributions, generators, saved and restored states, dropout, permutations."""
import torch
from torch import distributions

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
zero, one = torch.zeros(64, device="cuda"), torch.ones(64, device="cuda")
for family in (distributions.Normal(zero, one), distributions.Gamma(one * 2, one), distributions.Beta(one * 2, one * 3),
               distributions.Poisson(one * 4), distributions.Exponential(one), distributions.Bernoulli(one * 0.3),
               distributions.Laplace(zero, one), distributions.StudentT(one * 5), distributions.Cauchy(zero, one),
               distributions.Categorical(logits=zero), distributions.Dirichlet(one), distributions.Geometric(one * 0.2),
               distributions.MultivariateNormal(zero, torch.eye(64, device="cuda"))):
    sample = family.sample((100,))
    digest.add(type(family).__name__, sample, family.log_prob(sample))
digest.add("kl", distributions.kl_divergence(distributions.Normal(zero, one), distributions.Normal(one, one * 2)))
state = torch.cuda.get_rng_state()
first = torch.rand(1000, device="cuda")
torch.cuda.set_rng_state(state)
digest.add("restored state", first, (first == torch.rand(1000, device="cuda")).all())
generator = torch.Generator(device="cuda").manual_seed(99)
digest.add("generator", torch.randn(1000, device="cuda", generator=generator), torch.randperm(1000, device="cuda", generator=generator))
digest.add("dropout", torch.nn.functional.dropout(torch.ones(1000, device="cuda"), 0.3), torch.multinomial(one, 20))
digest.add("quasi-random", torch.quasirandom.SobolEngine(4, scramble=True, seed=3).draw(32))
digest.print()
