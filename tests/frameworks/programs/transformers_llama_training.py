# needs: packages=torch,transformers
# tolerance: 2e-2
"""A Llama-like model in bf16: training steps with a foreach optimizer and an average of the weights."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
config = LlamaConfig(vocab_size=4000, hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8,
                     num_key_value_heads=2)
model = LlamaForCausalLM(config).cuda().bfloat16().train()
average = torch.optim.swa_utils.AveragedModel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
losses = []
for step in range(6):
    tokens = torch.randint(0, 4000, (4, 128), device="cuda")
    loss = model(tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(model)
    losses.append(loss.detach())
digest.add("losses", torch.stack(losses))
digest.add("averaged weights", *average.module.parameters())
digest.print()
