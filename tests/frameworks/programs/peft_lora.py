# needs: packages=torch,transformers,peft
# tolerance: 2e-2
"""LoRA adapters of peft on a small GPT-2, trained and merged."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
base = GPT2LMHeadModel(GPT2Config(n_layer=3, n_embd=192, n_head=6, vocab_size=5000, bos_token_id=0, eos_token_id=0))
model = get_peft_model(base, LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True)).cuda().train()
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3)
for step in range(4):
    tokens = torch.randint(0, 5000, (4, 64), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    digest.add(f"loss {step}", loss)
digest.add("adapters", *trained)
merged = model.merge_and_unload().eval()
with torch.inference_mode():
    digest.add("merged", merged(tokens).logits)
digest.print()
