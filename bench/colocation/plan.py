"""Which cells are measured, in which order, and which modes are alive together. A run that is cut short should have the most telling cells."""
import dataclasses

import catalogue
import modes

NATIVE = "native"
MOST_EXECUTORS = 16  # at once; the driver made no context for the 17th, with 46 GiB left (H200, driver 580)


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


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is asked for. Every pair is measured at the first load beside the first number of trainings; the other loads and numbers,
    the sweeps, with some pairs only and perhaps in some modes only."""
    modes: tuple
    pairs: tuple  # (service, training); without a training: the service alone in each mode
    loads: tuple = (0.5,)
    counts: tuple = (1,)
    repetitions: int = 1
    load_pairs: tuple = ()
    tenant_pairs: tuple = ()
    sweep_modes: tuple = ()  # none: all
    idle_services: str = ""  # "also": trainings are measured beside a service that waits for requests, too; "only": not beside one that works

    def points(self):
        """(pair, load, number of trainings) in rounds: the main point of every pair, then a round for each other load and number."""
        swept = [pair for pair in dict.fromkeys((*self.load_pairs, *self.tenant_pairs)) if pair not in self.pairs]
        yield [(pair, self.loads[0], self.counts[0]) for pair in (*self.pairs, *swept)]
        for load in self.loads[1:]:
            yield [(pair, load, self.counts[0]) for pair in self.load_pairs]
        for count in self.counts[1:]:
            yield [(pair, self.loads[0], count) for pair in self.tenant_pairs]

    def _batch(self, points, mode_names, repetition, is_main, group):
        has_native_trainings = any(mode in modes.NATIVE for mode in mode_names)
        for (service, training), load, count in points:
            wanted = [mode for mode in mode_names if mode != "alone"] if training else []
            if not is_main or (service, training) not in self.pairs:
                wanted = [mode for mode in wanted if not self.sweep_modes or mode in self.sweep_modes]
            if self.idle_services == "only":
                wanted = []
            if training and not wanted and not has_native_trainings:
                continue
            yield Cell("alone", service, load, "", 0, repetition, group)
            yield from (Cell(mode, service, load, training, count, repetition) for mode in wanted)
            if not is_main:  # alone under the mode, at this load: the other baseline
                yield from (Cell(mode, service, load, "", 0, repetition) for mode in wanted if mode not in modes.NATIVE)
            if training and has_native_trainings and is_main:
                yield Cell("alone", "", 0, training, 1, repetition, group)
        if is_main:
            services = dict.fromkeys(service for (service, _), _, _ in points)
            under_modes = [mode for mode in mode_names if mode not in modes.NATIVE]
            yield from (Cell(mode, service, points[0][1], "", 0, repetition) for service in services for mode in under_modes)
            if self.idle_services:
                trainings = dict.fromkeys(training for (_, training), _, _ in points if training)
                yield from (Cell(mode, "", 0, training, 1, repetition) for training in trainings for mode in under_modes)

    def cells(self, mode_names):
        """Of modes that are alive together, in order. The main points come twice before the sweeps begin."""
        rounds = sorted((repetition + (2 if index else 0), index, repetition) for index, _ in enumerate(self.points())
                        for repetition in range(self.repetitions))
        points = list(self.points())
        found = {}
        for _, index, repetition in rounds:
            for cell in self._batch(points[index], mode_names, repetition, index == 0, ",".join(mode_names)):
                found.setdefault(cell.key(), cell)
        return list(found.values())

    def groups(self, free_gib):
        """Lists of modes that are alive at once and measured by turns: as many as fit the GPU's memory and have not more executors than the driver takes. MPS has the GPU's other processes
        be few: a group of its own. The native modes are one place, in the first group; its services are in each."""
        found = [[mode for mode in self.modes if mode in modes.NATIVE]]
        for mode in (mode for mode in self.modes if mode not in modes.NATIVE):
            with_it = [*found[-1], mode]
            is_apart = any(name in modes.MPS for name in with_it)
            wanted = needs(self.cells(with_it))
            if is_apart or gib(wanted) > 0.95 * free_gib or sum(map(modes.num_executors, wanted)) > MOST_EXECUTORS:
                found.append([])
            found[-1].append(mode)
        return found


def needs(cells):
    """{place: {(role, name): how many processes}} for these cells. What a service does alone is measured natively in every group."""
    found = {NATIVE: {}}
    for cell in cells:
        here = found.setdefault(modes.place_of(cell.mode), {})
        if cell.service:
            here["service", cell.service] = found[NATIVE]["service", cell.service] = 1
        if cell.training:
            here["training", cell.training] = max(cell.count, here.get(("training", cell.training), 0))
    return found


def gib(of_places):
    """About how much of the GPU's memory they take, contexts included."""
    return sum((catalogue.gpu_gib(role, name) + 0.6) * count for here in of_places.values() for (role, name), count in here.items())
