# needs: packages=torch,torchaudio
# tolerance: 1e-4
"""Audio features and losses: mel spectrogram, MFCC, resampling, CTC loss with its gradient."""
import torch
import torchaudio

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
sound = torch.randn(2, 16000, device="cuda")
digest.add("mel", torchaudio.transforms.MelSpectrogram(16000, n_fft=512, n_mels=64).cuda()(sound))
digest.add("mfcc", torchaudio.transforms.MFCC(16000, n_mfcc=20, melkwargs={"n_fft": 512, "n_mels": 40}).cuda()(sound))
digest.add("resampled", torchaudio.transforms.Resample(16000, 8000).cuda()(sound))
logits = torch.randn(50, 4, 20, device="cuda", requires_grad=True)
targets = torch.randint(1, 20, (4, 10), device="cuda")
loss = torch.nn.functional.ctc_loss(logits.log_softmax(2), targets, torch.full((4,), 50), torch.full((4,), 10))
loss.backward()
digest.add("ctc", loss, logits.grad)
digest.print()
