"""Which cells are measured, and in which order: a run that is cut short should have the most telling ones."""
import dataclasses

import catalogue
import modes


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement: a service, a training (or `count` of it), or both, in a mode."""
    mode: str
    service: str  # "" if the training is alone
    load: float   # share of the service's capacity alone
    training: str  # "" if the service is alone
    count: int
    repetition: int
    group: str = ""  # which modes were alive beside it; told apart for what is measured in every group, natively alone

    def key(self):
        return "|".join(str(part) for part in dataclasses.astuple(self))

    def sentence(self):
        parts = [self.service + f" at {self.load:.0%}" if self.service else "",
                 (f"{self.count} x " if self.count > 1 else "") + self.training if self.training else ""]
        return f"{self.mode}: " + " + ".join(part for part in parts if part) + f", {self.repetition + 1}"


def points(loads, counts):
    """(load, number of trainings): the first of both, then each of the others with the first of the other list."""
    return [(loads[0], counts[0])] + [(load, counts[0]) for load in loads[1:]] + [(loads[0], count) for count in counts[1:]]


def cells(pairs, mode_names, loads, counts, repetitions, with_native_trainings, group):
    """In order. The first point comes twice before the others begin."""
    order = []
    for index, (load, count) in enumerate(points(loads, counts)):
        for repetition in range(repetitions):
            order.append((repetition + (2 if index else 0), index, repetition, load, count))
    found = {}
    for _, index, repetition, load, count in sorted(order):
        batch = []
        for service, training in pairs:
            batch.append(Cell("alone", service, load, "", 0, repetition, group))
            batch += [Cell(mode, service, load, training, count, repetition) for mode in mode_names if mode != "alone"]
            if with_native_trainings and index == 0:
                batch.append(Cell("alone", "", 0, training, 1, repetition, group))
        if index == 0:
            batch += [Cell(mode, service, load, "", 0, repetition) for service, _ in pairs for mode in mode_names
                      if mode not in modes.NATIVE]
        for cell in batch:
            found.setdefault(cell.key(), cell)
    return list(found.values())


def groups(mode_names, pairs, most_trainings, free_gib):
    """Lists of modes that are alive at once and measured by turns: as many as fit the GPU's memory. The native place is
    in each, for what the service does alone. MPS has the GPU's other processes be few: a group of its own."""
    services = sum(catalogue.gpu_gib("service", service) + 1 for service in {service for service, _ in pairs})
    trainings = sum(catalogue.gpu_gib("training", training) + 1 for training in {training for _, training in pairs})
    whole = services + trainings * most_trainings
    first = [name for name in mode_names if name in modes.NATIVE]
    found, used = [first], whole
    for name in mode_names:
        if name in first:
            continue
        if name in modes.MPS or used + whole > 0.9 * free_gib or any(other in modes.MPS for other in found[-1]):
            found.append([])
            used = services
        found[-1].append(name)
        used += whole
    return found
