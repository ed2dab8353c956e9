# needs: packages=torch,transformers
# tolerance: 2e-2
"""Fine-tuning of a small BERT: bf16 autocast, fused AdamW, gradient clipping and accumulation."""
import torch
from transformers import BertConfig, BertForSequenceClassification

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, num_labels=5)
model = BertForSequenceClassification(config).cuda().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
losses = []
for step in range(8):
    for _ in range(2):
        tokens = torch.randint(0, 30000, (8, 64), device="cuda")
        labels = torch.randint(0, 5, (8,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(tokens, labels=labels).loss / 2
        loss.backward()
        losses.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
digest.add("losses", torch.stack(losses))
digest.add("weights", *model.parameters())
digest.print()
