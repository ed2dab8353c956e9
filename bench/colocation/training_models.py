"""The trainings of the catalogue: random weights, a fixed seed, synthetic batches; mixed precision as such trainings use it.

Each function here returns a model, its loss as a function of a batch, and the batch. A step copies a batch to
the GPU, runs forward, backward and the optimizer, and does not wait. NAME-graph is the same with the step as a CUDA graph, or several;
NAME-compiled by torch.compile: what is not a matrix product are kernels of Triton, whose PTX is known.
"""
import hashlib
import importlib

import torch

import catalogue
from worker import built

SEED = 20261121


def resnet50():
    import torchvision
    model = torchvision.models.resnet50(weights=None).cuda().to(memory_format=torch.channels_last)
    batch = (torch.randn(64, 3, 224, 224).contiguous(memory_format=torch.channels_last), torch.randint(0, 1000, (64,)))
    return model, lambda pictures, labels: torch.nn.functional.cross_entropy(model(pictures), labels), batch


def pointnet():
    from networks import PointNet
    model = PointNet(40).cuda()
    batch = (torch.randn(32, 3, 1024), torch.randint(0, 40, (32,)))
    return model, lambda points, labels: torch.nn.functional.cross_entropy(model(points), labels), batch


def policy():
    """As of reinforcement learning: layers so narrow that a kernel takes microseconds."""
    widths = (64, 256, 256, 256, 8)
    layers = [layer for width, out in zip(widths, widths[1:]) for layer in (torch.nn.Linear(width, out), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers).cuda()
    batch = (torch.randn(1024, widths[0]), torch.rand(1024, widths[-1]))
    return model, lambda seen, wanted: torch.nn.functional.mse_loss(model(seen), wanted), batch


def bert():
    from transformers import BertConfig, BertForMaskedLM
    model = BertForMaskedLM(BertConfig()).cuda()
    tokens = torch.randint(0, 30000, (32, 128))
    return model, lambda tokens: model(input_ids=tokens, labels=tokens).loss, (tokens,)


def gpt2(width, layers, heads, batch):
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=layers, n_head=heads)).cuda()
    tokens = torch.randint(0, 50000, (batch, 1024))
    return model, lambda tokens: model(input_ids=tokens, labels=tokens).loss, (tokens,)


def pegasus():
    from transformers import PegasusConfig, PegasusForConditionalGeneration
    config = PegasusConfig(vocab_size=32000, d_model=1024, encoder_layers=8, decoder_layers=8, encoder_attention_heads=16,
                           decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096)
    model = PegasusForConditionalGeneration(config).cuda()
    article, summary = torch.randint(3, 32000, (8, 512)), torch.randint(3, 32000, (8, 64))
    return model, lambda article, summary: model(input_ids=article, labels=summary).loss, (article, summary)


def whisper():
    """Of the size of Whisper small."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    config = WhisperConfig(d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12,
                           encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    model = WhisperForConditionalGeneration(config).cuda()
    sound, text = torch.randn(8, config.num_mel_bins, 3000), torch.randint(3, 50000, (8, 64))
    return model, lambda sound, text: model(input_features=sound, labels=text).loss, (sound, text)


NETWORKS = {"resnet50": resnet50, "pointnet": pointnet, "policy": policy, "bert": bert,
            "gpt2-small": lambda: gpt2(768, 12, 12, 8), "gpt2-medium": lambda: gpt2(1024, 24, 16, 8),
            "gpt2-large": lambda: gpt2(1280, 36, 20, 4), "pegasus": pegasus, "whisper": whisper}


def digest_of(result):
    return hashlib.sha256(result.detach().float().cpu().numpy().tobytes()).hexdigest()[:16]


def end_of_queue():
    """What waits for all that is queued by now."""
    done = torch.cuda.Event()
    done.record()
    return done.synchronize


class Training:
    def __init__(self, network, captured_steps, is_compiled):
        """`captured_steps`: of a graph; 0: eager."""
        with torch.device("cuda"):  # the CPU would take seconds for the numbers alone
            self.model, self.loss, batch = network()
        self.model.train()
        if is_compiled:
            self.loss = torch.compile(self.loss)
        self.batch = tuple(part.cpu().pin_memory() for part in batch)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, capturable=captured_steps > 0)
        # What takes part in a capture must never have been on the legacy stream, gradients included.
        stream = torch.cuda.Stream() if captured_steps else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            first = self._step()
            for _ in range(2):
                self._step()
        self._queue = self._captured(stream, captured_steps) if captured_steps else self._step
        torch.cuda.synchronize()
        self.facts = {"digest": digest_of(first), "loss": first.item(), "torch": torch.__version__,
                      "gpu_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2)}

    def _step(self):
        batch = [part.cuda(non_blocking=True) for part in self.batch]
        self.optimizer.zero_grad(set_to_none=True)
        return self._learn(batch)

    def _learn(self, batch):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.loss(*batch)
        loss.backward()
        self.optimizer.step()
        return loss

    def _captured(self, stream, num_steps):
        """What queues so many steps as one graph."""
        static = [part.cuda() for part in self.batch]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(num_steps):
                self.optimizer.zero_grad(set_to_none=True)  # gradients of the graph's own memory
                self._learn(static)

        def queue():
            for place, part in zip(static, self.batch):
                place.copy_(part, non_blocking=True)
            graph.replay()
        return queue

    def step(self):
        """Queues a step; returns what waits for it."""
        self._queue()
        return end_of_queue()


def build(name):
    if not catalogue.is_training(name):
        raise SystemExit(f"there is no training '{name}'")
    network = catalogue.network_of(name)
    importlib.import_module(catalogue.LIBRARIES.get(network, "torch"))
    torch.manual_seed(SEED)
    return built(Training, NETWORKS[network], catalogue.captured_steps(name), name.endswith("-compiled"))
