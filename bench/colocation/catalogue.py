"""What can be measured, without torch: names, forms, and about how much of the GPU's memory a process takes, without its context (GiB).

Only gpt2-medium and bert-graph were measured (docs/results); the rest is reckoned. The page's JSON says what each worker took."""

ALL_FORMS = ("eager", "graph", "compiled")
SERVICES = {
    "resnet50": (ALL_FORMS, 1),
    "bert": (ALL_FORMS, 1),
    "bert-small": (ALL_FORMS, 1),
    "recommender": (ALL_FORMS, 1),
    "detector": (ALL_FORMS, 1.5),
    "diffusion": (ALL_FORMS, 4),
    # Each token's attention has another shape, so a graph or a compiled form would be another program.
    "llama": (("eager",), 5.5),
    "gpt-neo": (("eager",), 6),
}
# Tiles of each multiprocessor that a launch of a pipeline has: on an H100 a few hundred microseconds to milliseconds, or a sixteenth of it.
PIPELINE_TILES = {"": 32, "-short": 2}
TRAININGS = {"resnet50": 6, "resnet50-graph": 6, "pointnet": 3, "pointnet-graph": 3, "policy-graph": 1, "bert": 6, "gpt2-small": 14, "gpt2-medium": 28, "gpt2-large": 32, "pegasus": 14, "whisper": 10,
             "pointnet-compiled": 3, "bert-compiled": 6, "whisper-compiled": 10,
             "pictures": 4,  # no training: made ready for one (data_preparation.py)
             **{f"pipeline-{chain}{length}": 1 for chain in ("2x64", "edges", "dlrm", "policy", "8x256") for length in PIPELINE_TILES}}
STAND_IN = "stand-in"
# What takes seconds to import, besides torch.
LIBRARIES = {
    "resnet50": "torchvision",
    "detector": "torchvision",
    "bert": "transformers.models.bert.modeling_bert",
    "bert-small": "transformers.models.bert.modeling_bert",
    "llama": "transformers.models.llama.modeling_llama",
    "gpt-neo": "transformers.models.gpt_neo.modeling_gpt_neo",
    "gpt2-small": "transformers.models.gpt2.modeling_gpt2",
    "gpt2-medium": "transformers.models.gpt2.modeling_gpt2",
    "gpt2-large": "transformers.models.gpt2.modeling_gpt2",
    "pegasus": "transformers.models.pegasus.modeling_pegasus",
    "whisper": "transformers.models.whisper.modeling_whisper",
}


def is_service(name):
    network, _, form = name.rpartition("-")
    return name == STAND_IN or (network in SERVICES and form in SERVICES[network][0])


def is_training(name):
    return name == STAND_IN or name in TRAININGS


def choose_pair(options, parser):
    """Sets options.service and options.training, as --pair and --smoke have them."""
    pair = f"{STAND_IN}:{STAND_IN}" if options.smoke else options.pair
    options.service, _, options.training = pair.partition(":")
    if not is_service(options.service) or not is_training(options.training):
        parser.error(f"no pair of a service and a training: {options.pair}")


def pipeline(name):
    """Of a training pipeline-CHAIN: its chain of bench/pipelines, tiles of each multiprocessor."""
    length = "-short" if name.endswith("-short") else ""
    return name.removeprefix("pipeline-").removesuffix(length), PIPELINE_TILES[length]


def captured_steps(training):
    """In its CUDA graph; 0: it has none. A step of the policy network takes about 0.2 ms."""
    return {"policy-graph": 32}.get(training, int(training.endswith("-graph")))


def network_of(training):
    return training.removesuffix("-graph").removesuffix("-compiled")


def gpu_gib(role, name):
    if name == STAND_IN:
        return 0
    return SERVICES[name.rpartition("-")[0]][1] if role == "service" else TRAININGS[name]


# The Tally paper's services and trainings, and two small services.
MATRIX_SERVICES = ("bert-graph", "resnet50-graph", "detector-graph", "llama-eager", "diffusion-graph", "gpt-neo-eager", "bert-small-graph",
                   "recommender-graph")
MATRIX_TRAININGS = ("gpt2-large", "pegasus", "resnet50", "whisper", "bert", "pointnet")


def all_pairs():
    """Every service in one form (as a graph where it can be one) with every training. Pairs of a diagonal first: a short run meets every
    model once."""
    return [(service, MATRIX_TRAININGS[(row + column) % len(MATRIX_TRAININGS)]) for column in range(len(MATRIX_TRAININGS))
            for row, service in enumerate(MATRIX_SERVICES)]
