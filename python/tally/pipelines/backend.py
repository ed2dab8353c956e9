"""The backend `tally` of torch.compile: chains that are measured faster become pipelines, inductor does the rest.

    model = torch.compile(model, backend="tally")

Whatever goes wrong here, inductor gets the graph as it was.
"""
import logging
import operator

import torch
import torch.fx

from tally.pipelines import chains, fx, operation, rules, spec, training

_log = logging.getLogger("tally.pipelines")


def _patches(mode, options):
    """Inductor's configuration for torch.compile's `mode` and `options`."""
    from torch import _inductor
    return {**(_inductor.list_mode_options(mode) if mode else {}), **(options or {})}


def _verdict(module, chain, patches):
    """Why a chain is left to inductor; "" if it is not."""
    from tally.pipelines import measure
    if chain.refused:
        return chain.refused
    if chain.trains and not training.IS_POSSIBLE:
        return "a backward pass may follow, which needs PyTorch 2.4"
    device = next(fx.value_of(node).device for node in module.graph.nodes if node.name == chain.input)
    try:
        return rules.of_times(measure.measure(chain, device, patches))
    except Exception as error:  # of the compiler that it is compared with, or no memory: not this model's concern
        _log.warning("a chain of %d layers could not be measured: %s: %s", len(chain.layers), type(error).__name__,
                     error)
        return "it could not be measured"


def choose(module, patches):
    """The chains of a graph that are worth replacing here. Changes nothing."""
    chosen = []
    for chain in chains.find(fx.graph_of(module)):
        why = _verdict(module, chain, patches)
        _log.info("%s: %s", "-".join(map(str, chain.widths())), f"left to inductor: {why}" if why else "a pipeline")
        if not why:
            chosen.append(chain)
    return chosen


def replace(module, chosen):
    """Puts one call of tally::chain or tally::train where each chain's last operation was."""
    by_name = {node.name: node for node in module.graph.nodes}
    for chain in chosen:
        by_name[chain.output] = _replace(module, chain, by_name)  # the next chain may take it
    module.graph.lint()
    module.recompile()


def _replace(module, chain, by_name):
    last = by_name[chain.output]

    def node_of(name):
        # Else a parameter of a module that is called.
        return by_name[name] if name in by_name else module.graph.get_attr(name)

    with module.graph.inserting_after(last):
        anchor = module.graph.call_function(training.train if chain.trains else operation.chain, ())
    with module.graph.inserting_before(anchor):
        operands = [node_of(name) for name in chain.operands()]
    x = by_name[chain.input]
    text = spec.of(chain)
    anchor.args = (x, operands, text)
    operation.runner(text).uses += 1
    result, shape = anchor, fx.shape_of(last)
    if chain.trains:  # it gives what is saved, too
        with module.graph.inserting_after(anchor):
            result = anchor = module.graph.call_function(operator.getitem, (anchor, 0))
    if shape is not None and fx.shape_of(x) is not None and shape[:-1] != fx.shape_of(x)[:-1]:
        with module.graph.inserting_after(anchor):
            result = module.graph.call_method("reshape", (anchor, shape))
    result.meta.update(last.meta)
    last.replace_all_uses_with(result)
    for name in reversed(chain.nodes):
        module.graph.erase_node(by_name[name])
    return result


def tally(module, example_inputs, *, mode=None, options=None):
    """What torch.compile calls."""
    from torch._inductor.compile_fx import compile_fx
    patches = _patches(mode, options)
    try:
        chosen = choose(module, patches)
    except Exception as error:  # inductor can do without us
        _log.warning("no pipelines in this graph: %s: %s", type(error).__name__, error)
        chosen = []
    if chosen:
        replace(module, chosen)
    return compile_fx(module, example_inputs, config_patches=patches or None)
