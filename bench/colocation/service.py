#!/usr/bin/env python3
"""An inference service as a worker of colocation.py.

    service.py NAME         NAME: a line of inference_models.SERVICES, or stand-in

Builds the model, warms up, prints {"ready": true, "digest": ...}. Then answers on stdout each JSON line on stdin:

    {"capacity": S}                        requests back to back for S seconds: how many per second
    {"arrivals": [...], "begin": T, "grace": G}
                                           one request after another, none before its arrival (T + arrivals[i], on
                                           CLOCK_MONOTONIC): latencies from arrival to completion. Requests that
                                           have not begun G seconds after the last arrival are not served; they
                                           count with the time that they have waited by then. Also, for each served
                                           one, when it was asked for, how long it took from then on, and the
                                           GPU's clock when its work there began and ended
    {"calibrate": true}                    how the GPU's clock goes (stamps.py)

The output of every request is compared bit for bit with what the same input gave while warming up; the digest of all of
those lets colocation.py compare that with other runs. Ends with stdin.
"""
import gc
import sys
import time

from stamps import Stamps
from worker import Lines, wait_until


def capacity(service, seconds):
    begin = time.monotonic()
    count = 0
    while time.monotonic() < begin + seconds:
        service.request(count)
        service.matches(count)
        count += 1
    return {"per_second": count / (time.monotonic() - begin)}


def run(service, stamps, arrivals, begin, grace):
    latencies, asked, own, wrong, unserved = [], [], [], 0, 0
    give_up = begin + arrivals[-1] + grace
    for index, arrival in enumerate(arrivals):
        due = begin + arrival
        if time.monotonic() > give_up:
            unserved = len(arrivals) - index
            latencies += [(time.monotonic() - begin - later) * 1e3 for later in arrivals[index:]]
            break
        wait_until(due)
        asked.append(time.monotonic_ns())
        stamps.begin(index)
        service.request(index, lambda index=index: stamps.end(index))
        own.append(round((time.monotonic_ns() - asked[-1]) / 1e6, 4))
        stamps.collect(index)
        latencies.append((time.monotonic() - due) * 1e3)
        wrong += not service.matches(index)
    times = [stamps.of(index) for index in range(len(asked))]
    return {"latencies_ms": [round(latency, 4) for latency in latencies], "unserved": unserved, "wrong": wrong, "own_ms": own, "asked_ns": asked,
            "began_ns": [began for began, _ in times], "ended_ns": [ended for _, ended in times]}


def build(name):
    """The service, and the stamps of its requests, which need a context to be made in."""
    if name == "stand-in":
        import stand_ins
        return stand_ins.Service(), Stamps()
    import inference_models
    service = inference_models.build(name)
    return service, service.stamps


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = Lines()
    service, stamps = build(sys.argv[1])
    stamps.calibrate()  # the first launches take longer
    gc.collect()
    gc.freeze()  # what the libraries made while starting is not looked at again: a pause of tens of ms
    lines.say({"ready": True, **service.facts})
    while True:
        request = lines.poll(None)
        if "capacity" in request:
            lines.say(capacity(service, request["capacity"]))
        elif "calibrate" in request:
            lines.say(stamps.calibrate())
        else:
            lines.say(run(service, stamps, request["arrivals"], request["begin"], request["grace"]))


if __name__ == "__main__":
    main()
