# needs: packages=torch,transformers
"""BERT-base: fp32 and fp16, with and without padding, and as a CUDA graph."""
import torch
from transformers import BertConfig, BertModel

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
model = BertModel(BertConfig()).cuda().eval()
tokens = torch.randint(0, 30000, (4, 128), device="cuda")
mask = torch.ones_like(tokens)
mask[1, 100:] = 0
with torch.inference_mode():
    digest.add("fp32", model(tokens).last_hidden_state)
    digest.add("padded", model(tokens, attention_mask=mask).pooler_output)
    model.half()
    digest.add("fp16", model(tokens).last_hidden_state)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(tokens, attention_mask=mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = model(tokens, attention_mask=mask).last_hidden_state
    graph.replay()
    digest.add("graph", captured)
digest.print()
