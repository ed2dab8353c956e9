# needs: packages=torch,transformers
# tolerance: 2e-2
"""GPT-2 training steps: fp16 autocast with loss scaling, gradient checkpointing."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = GPT2LMHeadModel(GPT2Config(n_layer=6, n_embd=384, n_head=6)).cuda().train()
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
losses = []
for step in range(6):
    tokens = torch.randint(0, 50257, (4, 256), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(tokens, labels=tokens, use_cache=False).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    losses.append(loss.detach())
digest.add("losses", torch.stack(losses))
digest.add("weights", *model.parameters())
digest.print()
