# needs: packages=torch,transformers
"""GPT-2 small in fp16: generate(), greedy, sampled and with beams."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = GPT2LMHeadModel(GPT2Config()).cuda().half().eval()
tokens = torch.randint(0, 50000, (2, 12), device="cuda")
common = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": 24, "min_new_tokens": 24, "pad_token_id": 0}
with torch.inference_mode():
    digest.add("logits", model(tokens).logits)
    digest.add("greedy", model.generate(tokens, do_sample=False, **common))
    torch.manual_seed(7)
    digest.add("sampled", model.generate(tokens, do_sample=True, top_k=50, temperature=0.8, **common))
    digest.add("beams", model.generate(tokens, do_sample=False, num_beams=3, **common))
digest.print()
