"""The chains that bench/pipelines measures: shapes of networks that are made of narrow layers."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Layer:
    out: int
    activation: str = ""  # relu, gelu, silu
    norm: str = ""  # layer
    concat: bool = False  # takes the chain's input once more, in front of the hidden columns
    residual: bool = False


@dataclasses.dataclass(frozen=True)
class Chain:
    name: str
    about: str
    input: int
    layers: tuple

    def widths(self):
        """(in, out) of each layer's weights."""
        hidden = self.input
        for layer in self.layers:
            yield hidden + (self.input if layer.concat else 0), layer.out
            hidden = layer.out

    def products(self):
        """Multiply-adds of one row."""
        return sum(columns * out for columns, out in self.widths())


def equal(count, width, last=""):
    return tuple(Layer(width, "relu") for _ in range(count - 1)) + (Layer(width, last),)


CHAINS = [
    Chain("2x64", "two layers", 64, equal(2, 64)),
    Chain("2x128", "two layers", 128, equal(2, 128)),
    Chain("2x256", "two layers", 256, equal(2, 256)),
    Chain("edges", "edge network of a MeshGraphNet, with LayerNorm", 384,
          (Layer(128, "relu"), Layer(128, "relu"), Layer(128, norm="layer"))),
    Chain("nodes", "node network of a MeshGraphNet, with LayerNorm", 256,
          (Layer(128, "relu"), Layer(128, "relu"), Layer(128, norm="layer"))),
    Chain("field", "radiance field, eight layers, input once more in the fifth", 64,
          (*equal(4, 256, "relu"), Layer(256, "relu", concat=True), *equal(3, 256, "relu"))),
    Chain("8x128", "eight layers", 128, equal(8, 128)),
    Chain("8x256", "eight layers", 256, equal(8, 256)),
    Chain("dlrm", "bottom tower of a recommender", 16, (Layer(512, "relu"), Layer(256, "relu"), Layer(64, "relu"))),
    Chain("policy", "policy of a robot, SiLU, residual", 128,
          (Layer(256, "silu"), Layer(256, "silu"), Layer(128, residual=True))),
]
