"""The inference services of the catalogue: random weights, a fixed seed, nothing downloaded. Half precision, batch 1.

A service is NAME-FORM; each function here returns a network and what makes one request's input. Forms: `eager` (launched
from Python), `graph` (a CUDA graph is replayed), `compiled` (torch.compile). A request copies its
input to the GPU, runs the network, copies the output back and waits for it.
"""
import hashlib
import importlib
import time

import torch

import catalogue
from stamps import Stamps
from worker import built

SEED = 20261121
NUM_INPUTS = 4  # requests take them by turns
MOST_WARM_UPS, WARM_UP_S = 20, 1.0


def half(shape):
    return lambda: (torch.randn(shape).half(),)


def resnet50():
    import torchvision
    return torchvision.models.resnet50(weights=None).cuda().half().eval().to(memory_format=torch.channels_last), half((1, 3, 224, 224))


def bert(**sizes):
    """BERT-base where no sizes are given."""
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(**sizes)).cuda().half().eval()
    mask = torch.ones(1, 128, dtype=torch.int64, device="cuda")
    return (lambda tokens: model(input_ids=tokens, attention_mask=mask).last_hidden_state,
            lambda: (torch.randint(0, 30000, (1, 128)),))


def bert_small():
    """A service of little work: as a graph a request takes a quarter of a millisecond."""
    return bert(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048)


def recommender():
    """A ranking model of a recommender: one user's 128 candidates a request. As a graph a tenth of a millisecond."""
    from networks import Recommender
    return (Recommender().cuda().half().eval(),
            lambda: (torch.randn(128, 13).half(), torch.randint(0, Recommender.ROWS, (128, Recommender.TABLES))))


def detector():
    from networks import Detector
    return Detector().cuda().half().eval().to(memory_format=torch.channels_last), half((1, 3, 640, 640))


def diffusion():
    from networks import DenoisingUNet
    model = DenoisingUNet().cuda().half().eval()
    return model, lambda: (torch.randn(1, 4, 64, 64).half(), torch.randint(0, 1000, (1,)), torch.randn(1, 77, 768).half())


def generation(model, vocabulary, num_prompt, num_new):
    """Greedy, token by token, with a cache of keys and values. The last logits are part of the output: they tell more than tokens."""
    def generate(tokens):
        step = model(input_ids=tokens, use_cache=True)
        chosen = []
        for _ in range(num_new):
            chosen.append(step.logits[:, -1].argmax(dim=-1, keepdim=True))
            step = model(input_ids=chosen[-1], past_key_values=step.past_key_values, use_cache=True)
        return torch.cat([step.logits[0, -1].float(), torch.cat(chosen, dim=1)[0].float()])
    return generate, lambda: (torch.randint(3, vocabulary, (1, num_prompt)),)


def llama():
    """Of the size of Llama 3.2 1B."""
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                         num_key_value_heads=8, max_position_embeddings=512)
    return generation(LlamaForCausalLM(config).half().cuda().eval(), 32000, 64, 16)


def gpt_neo():
    """Of the size of GPT-Neo 1.3B."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM
    config = GPTNeoConfig(hidden_size=2048, num_layers=24, num_heads=16, attention_types=[[["global", "local"], 12]],
                          max_position_embeddings=512)
    return generation(GPTNeoForCausalLM(config).half().cuda().eval(), 50000, 64, 16)


NETWORKS = {"resnet50": resnet50, "bert": bert, "bert-small": bert_small, "recommender": recommender,
            "detector": detector, "diffusion": diffusion, "llama": llama, "gpt-neo": gpt_neo}


def captured(run, static, around=lambda run: run()):
    """A CUDA graph of run(*static), with what is put around it, and its output."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = around(lambda: run(*static))
    return graph, output


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8)


class Service:
    def __init__(self, network, form):
        with torch.device("cuda"):  # the CPU would take seconds for the numbers alone
            run, make_input = network()
        torch.cuda.empty_cache()
        if form == "compiled":
            run = torch.compile(run)
        self.inputs = [tuple(part.pin_memory() for part in make_input()) for _ in range(NUM_INPUTS)]
        self.static = tuple(part.cuda() for part in self.inputs[0])
        self.stamps = Stamps()
        with torch.inference_mode():
            for _ in range(5):
                output = run(*self.static)
            torch.cuda.synchronize()
            graph = None
            if form == "graph":
                graph, output = captured(run, self.static, lambda run: self.stamps.around(run, torch.cuda.current_stream().cuda_stream))
        self.network = run  # a graph does not keep its weights
        self.output = torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
        self.run = self._replay(graph, output) if graph is not None else lambda: run(*self.static)
        begin = time.monotonic()
        for index in range(MOST_WARM_UPS):
            self.request(index)
            if index >= NUM_INPUTS and time.monotonic() > begin + WARM_UP_S:
                break
        self.expected = []
        for index in range(NUM_INPUTS):
            self.request(index)
            self.expected.append(bits(self.output.clone()))
        hasher = hashlib.sha256()
        for expected in self.expected:
            hasher.update(expected.numpy().tobytes())
        self.facts = {"digest": hasher.hexdigest()[:16], "torch": torch.__version__, "finite": bool(torch.isfinite(self.output).all()),
                      "gpu_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2)}

    @staticmethod
    def _replay(graph, output):
        def run():
            graph.replay()
            return output
        return run

    def request(self, index, before_waiting=lambda: None):
        with torch.inference_mode():
            for static, part in zip(self.static, self.inputs[index % NUM_INPUTS]):
                static.copy_(part, non_blocking=True)
            self.output.copy_(self.run(), non_blocking=True)
        before_waiting()
        torch.cuda.synchronize()

    def matches(self, index):
        return torch.equal(bits(self.output), self.expected[index % NUM_INPUTS])


def build(name):
    if not catalogue.is_service(name):
        raise SystemExit(f"there is no service '{name}'")
    network, _, form = name.rpartition("-")
    importlib.import_module(catalogue.LIBRARIES.get(network, "torch"))
    torch.manual_seed(SEED)
    return built(Service, NETWORKS[network], form)
