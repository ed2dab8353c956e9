# needs: packages=torch
"""cuFFT: real and complex, one to three dimensions, odd lengths, half precision, gradients, short-time transforms."""
import torch

from shared.digest import Digest
from shared.seeding import seed_torch

seed_torch()
digest = Digest()
x = torch.randn(64, 1024, device="cuda")
digest.add("complex", torch.fft.fft(x), torch.fft.ifft(torch.complex(x, x.flip(1))))
digest.add("real", torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x)))
digest.add("double", torch.fft.fft(x.double()))
digest.add("half", torch.view_as_real(torch.fft.fft(x[:, :256].half())))
for length in (7, 100, 331, 1009, 3000):
    digest.add(f"length {length}", torch.fft.fft(torch.randn(5, length, device="cuda")))
digest.add("2d", torch.fft.fft2(torch.randn(4, 60, 90, device="cuda")))
digest.add("3d", torch.fft.fftn(torch.randn(32, 20, 24, device="cuda")), torch.fft.rfftn(torch.randn(16, 16, 16, device="cuda")))
digest.add("helpers", torch.fft.fftshift(x), torch.fft.fftfreq(100, device="cuda"), torch.fft.hfft(torch.complex(x, x)))
x.requires_grad_(True)
torch.fft.rfft(x).abs().sum().backward()
digest.add("gradient", x.grad)
sound = torch.randn(2, 16000, device="cuda")
window = torch.hann_window(400, device="cuda")
spectrum = torch.stft(sound, 512, hop_length=160, win_length=400, window=window, return_complex=True)
digest.add("stft", spectrum)
digest.print()
