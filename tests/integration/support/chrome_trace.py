"""A strict reader of Chrome's trace format as tallyctl trace writes it: whatever a viewer might choke on is an error."""
import collections
import json


class BadTrace(AssertionError):
    pass


def need(condition, what):
    if not condition:
        raise BadTrace(what)


def number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class ChromeTrace:
    FIELDS = {"M": {"ph", "name", "pid", "tid", "args"}, "X": {"ph", "pid", "tid", "ts", "dur", "name", "args"},
              "s": {"ph", "cat", "name", "id", "pid", "tid", "ts"}, "f": {"ph", "bp", "cat", "name", "id", "pid", "tid", "ts"},
              "i": {"ph", "s", "pid", "tid", "ts", "name"}}

    def __init__(self, text):
        def unique(pairs):
            keys = [key for key, _ in pairs]
            need(len(set(keys)) == len(keys), f"a key twice: {keys}")
            return dict(pairs)
        need(text.isascii(), "not ASCII")
        self.whole = json.loads(text, object_pairs_hook=unique, parse_constant=lambda word: need(False, word))
        need(set(self.whole) == {"traceEvents", "displayTimeUnit", "otherData"}, set(self.whole))
        self.processes, self.threads = {}, {}
        self.slices = collections.defaultdict(list)  # by (pid, tid)
        self.flows = collections.defaultdict(dict)
        for event in self.whole["traceEvents"]:
            self.read(event)
        need(all(set(ends) == {"s", "f"} for ends in self.flows.values()), "an arrow with one end")
        for (pid, tid), slices in self.slices.items():
            need(pid in self.processes, f"process {pid} has no name")
            self.check_nesting((pid, tid), slices)
        begins = {thread: {one["ts"] for one in slices} for thread, slices in self.slices.items()}
        for ends in self.flows.values():
            for event in ends.values():  # each at the beginning of a slice
                need(event["ts"] in begins.get((event["pid"], event["tid"]), ()), f"an arrow to nowhere: {event}")

    def read(self, event):
        kind = event.get("ph")
        need(kind in self.FIELDS, event)
        need(set(event) <= self.FIELDS[kind] and set(event) >= self.FIELDS[kind] - {"tid", "args"}, event)
        need(all(isinstance(event.get(key, 0), int) and 0 <= event.get(key, 0) < 2**32 for key in ("pid", "tid")), event)
        need(all(number(event[key]) for key in ("ts", "dur") if key in event) and event.get("dur", 0) >= 0, event)
        need(isinstance(event["name"], str), event)
        if kind == "M" and event["name"] == "process_name":
            need(event["pid"] not in self.processes, f"named twice: {event}")
            self.processes[event["pid"]] = event["args"]["name"]
        elif kind == "M" and event["name"] == "thread_name":
            need((event["pid"], event["tid"]) not in self.threads, f"named twice: {event}")
            self.threads[event["pid"], event["tid"]] = event["args"]["name"]
        elif kind == "X":
            self.slices[event["pid"], event["tid"]].append(event)
        elif kind in "sf":
            need(kind not in self.flows[event["id"]], f"two such ends: {event}")
            self.flows[event["id"]][kind] = event

    @staticmethod
    def check_nesting(thread, slices):
        """Of one thread: each lies in the one before or behind it, as viewers draw them."""
        open_until = []
        for one in sorted(slices, key=lambda one: (one["ts"], -one["dur"])):
            while open_until and open_until[-1] <= one["ts"] + 0.0005:
                open_until.pop()
            end = one["ts"] + one["dur"]
            need(not open_until or end <= open_until[-1] + 0.0015, f"{thread}: overlaps what began before: {one}")
            open_until.append(end)

    def process(self, words):
        """The one whose name holds these words."""
        (found,) = [pid for pid, name in self.processes.items() if words in name]
        return found

    def of(self, words, thread):
        """Slices of a process's threads whose names end so."""
        pid = self.process(words)
        return [one for key, slices in self.slices.items() for one in slices
                if key[0] == pid and self.threads.get(key, "").endswith(thread)]
