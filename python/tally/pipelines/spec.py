"""A chain as a string, operands by number: the argument of the operation tally::chain, the same for the same chain."""
import dataclasses
import json

from tally.pipelines.chains import Chain, Layer

_OPERANDS = ("weights", "bias", "scale", "shift")


def of(chain):
    """The string. Operand i is the i-th of chain.operands()."""
    index = {name: i for i, name in enumerate(chain.operands())}
    layers = []
    for layer in chain.layers:
        fields = dataclasses.asdict(layer)
        del fields["node"]
        for name in _OPERANDS:
            fields[name] = None if fields[name] is None else index[fields[name]]
        layers.append({name: value for name, value in fields.items()
                       if value is not None and value is not False and value != ""})
    pass_ = {"trains": True, "wants_dx": chain.wants_dx} if chain.trains else {}
    return json.dumps({"dtype": chain.dtype, "rows": chain.rows, "layers": layers, **pass_}, sort_keys=True)


def parse(text):
    """The chain; its operands' names are their numbers as strings."""
    document = json.loads(text)
    layers = []
    for i, fields in enumerate(document["layers"]):
        named = {name: str(fields[name]) for name in _OPERANDS if name in fields}
        layers.append(Layer(str(i), **{**fields, **named}))
    return Chain("input", layers=layers, rows=document["rows"], dtype=document["dtype"],
                 trains=document.get("trains", False), wants_dx=document.get("wants_dx", False))
