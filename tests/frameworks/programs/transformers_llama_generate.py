# needs: packages=torch,transformers
"""A Llama-like model (grouped-query attention, rotary embedding) in bf16: generate() with a dynamic and a static cache."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
config = LlamaConfig(vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                     num_key_value_heads=2, max_position_embeddings=512)
model = LlamaForCausalLM(config).cuda().bfloat16().eval()
tokens = torch.randint(3, 8000, (3, 20), device="cuda")
common = {"attention_mask": torch.ones_like(tokens), "max_new_tokens": 32, "min_new_tokens": 32, "pad_token_id": 0}
with torch.inference_mode():
    digest.add("logits", model(tokens).logits)
    digest.add("greedy", model.generate(tokens, do_sample=False, **common))
    torch.manual_seed(7)
    digest.add("sampled", model.generate(tokens, do_sample=True, top_p=0.9, **common))
    digest.add("without cache", model.generate(tokens, do_sample=False, use_cache=False, **common))
digest.print()
