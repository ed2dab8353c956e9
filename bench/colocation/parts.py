"""Benches that ask several questions, each in rooms of its own (room.py): options, page, what went wrong."""
import argparse
import collections.abc
import dataclasses
import subprocess
import sys

import catalogue
import command_line
import machine
import modes
import output
import ways
from room import Room


@dataclasses.dataclass(frozen=True)
class Part:
    rooms: dict  # by name: what Room takes as `kind`
    measure: collections.abc.Callable  # of a Room
    page: collections.abc.Callable     # of the room's name and what `measure` gave: lines
    cells: collections.abc.Callable    # of that: what services answered


@dataclasses.dataclass(frozen=True)
class Bench:
    description: str
    title: str  # of the page; {service} and {training} are filled in
    parts: dict
    options: tuple = ()  # more: (name, sentence, default, type)

    def read_options(self, words=None):
        parser = argparse.ArgumentParser(description=self.description, formatter_class=argparse.RawDescriptionHelpFormatter)
        option = command_line.option_adder(parser)
        option("--parts", ", ".join(self.parts), ",".join(self.parts))
        option("--pair", "SERVICE:TRAINING of catalogue.py", "bert-graph:whisper")
        option("--load", "per cent of the service's capacity", 50, type=float)
        option("--seconds", "of requests in a cell", 6, type=float)
        for name, sentence, default, kind in self.options:
            option(name, sentence, default, type=kind)
        option("--start-limit", "seconds in which programs must be ready", 120, type=float)
        option("--json", "all times", dest="json_path")
        option("--output", "Markdown file; it also goes to stdout")
        option("--smoke", "does everything run? Stand-in programs, software driver, no numbers", action="store_true")
        chosen = parser.parse_args(words)
        catalogue.choose_pair(chosen, parser)
        chosen.parts = chosen.parts.split(",")
        if not set(chosen.parts) <= set(self.parts):
            parser.error(f"parts are {', '.join(self.parts)}")
        return chosen

    def page(self, results):
        text = [f"# {self.title.format(**results)}", "", *(f"* {key}: {value}" for key, value in results["machine"].items()), ""]
        text += ["No numbers: the software GPU, and programs of one tiny kernel.", ""] if results["smoke"] else []
        for part, found in results["parts"].items():
            for name, numbers in found.items():
                text += self.parts[part].page(name, numbers)
        return "\n".join(text + [f"* not measured: {sentence}" for sentence in results["failures"]]) + "\n"

    def problems(self, results):
        sentences = list(results["failures"])
        for part, rooms in results["parts"].items():
            for name, found in rooms.items():
                num_wrong = sum(cell["wrong"] for cell in self.parts[part].cells(found))
                sentences += [f"{part}, {name}: {num_wrong} wrong outputs"] if num_wrong else []
        return sentences

    def main(self):
        options = self.read_options()
        root = ways.find_root()
        results = {"machine": machine.describe(root, () if options.smoke else ("torch", "transformers")), "smoke": options.smoke,
                   "service": options.service, "training": options.training, "parts": {part: {} for part in options.parts}, "failures": []}
        for part in options.parts:
            rooms = list(self.parts[part].rooms.items())
            for name, kind in rooms[:2] if options.smoke else rooms:
                print(f"{part}, {name}", file=sys.stderr, flush=True)
                try:
                    why_not = modes.missing(root, kind, options.smoke) if isinstance(kind, str) else None
                    if why_not:
                        raise ways.Failed(why_not)
                    with Room(root, options, name, kind) as room:
                        results["parts"][part][name] = self.parts[part].measure(room)
                except (ways.Failed, OSError, subprocess.SubprocessError) as failure:
                    results["failures"].append(f"{part}, {name}: {failure}")
                output.write(self.page(results), results, options)
        print(self.page(results))
        return self.problems(results)
