"""What tests of the window ask for: programs under it, and the figures that say that launches were held."""
import re

# Whether executors gather launches at all: without that these tests pass for nothing.
LAUNCHES_ARE_HELD = True

# Some order of the software GPU's work, so that a launch which does not wait for another shows; and addresses that come
# again, as on a GPU. Every shape that comes again is a graph, whether it is faster or not.
HOSTILE_GPU = {"TALLY_SIM_SHUFFLE": "1", "TALLY_SIM_REUSE_ADDRESSES": "1", "TALLY_FORCE_WINDOW": "graphs"}
ON, SHADOW = {"TALLY_WINDOW": "on"}, {"TALLY_WINDOW": "shadow"}


def hostile_gpu(seed):
    return {**HOSTILE_GPU, "TALLY_SIM_SHUFFLE": str(seed)}


def launches_in_graphs(page):
    """Of all programs that there have been, by a page of metrics."""
    return sum(float(count) for count in re.findall(
        r'^tally_tenant_window_issued_total\{[^}]*how="graph"[^}]*\} (\S+)$', page, re.MULTILINE))


def assert_launches_were_in_graphs(test, page, at_least=1):
    if LAUNCHES_ARE_HELD:
        test.assertGreaterEqual(launches_in_graphs(page), at_least)
