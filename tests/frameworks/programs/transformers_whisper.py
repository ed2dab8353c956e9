# needs: packages=torch,transformers
"""A small Whisper in fp16: encoder once, greedy decoding token by token."""
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
config = WhisperConfig(d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=4,
                       encoder_ffn_dim=1024, decoder_ffn_dim=1024)
model = WhisperForConditionalGeneration(config).cuda().half().eval()
sound = torch.randn(2, config.num_mel_bins, 3000, device="cuda", dtype=torch.half)
with torch.inference_mode():
    encoded = model.get_encoder()(sound)
    digest.add("encoder", encoded.last_hidden_state)
    tokens = torch.full((2, 1), config.decoder_start_token_id, device="cuda")
    for _ in range(16):
        logits = model(encoder_outputs=encoded, decoder_input_ids=tokens).logits[:, -1]
        tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True)], dim=1)
digest.add("last logits", logits)
digest.add("tokens", tokens)
digest.print()
