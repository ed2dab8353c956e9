#!/usr/bin/env python3
"""A training as a worker of colocation.py.

    training.py NAME        NAME: a line of training_models.TRAININGS, pipeline-CHAIN[-short] of bench/pipelines,
                            pictures (data_preparation.py), or stand-in

Builds the model, warms up, prints {"ready": true, "digest": ...} (of the first steps' loss). {"train": true} on stdin: it trains until
any other line, then answers {"completions": [...]}: when its steps were complete, on CLOCK_MONOTONIC. At most two steps
are queued at a time, as in a loop that reads its loss one step late. Ends with stdin. TALLY_BENCH_GPUS: it is on so many
GPUs (data_parallel.py).
"""
import gc
import os
import sys
import time

from worker import Lines, built


def train(training, lines):
    completions = []
    previous = None
    while lines.poll() is None:
        wait = training.step()
        if previous is not None:
            previous()
            completions.append(round(time.monotonic(), 6))
        previous = wait
    if previous is not None:
        previous()
        completions.append(round(time.monotonic(), 6))
    return {"completions": completions}


def build(name):
    num_gpus = int(os.environ.get("TALLY_BENCH_GPUS", "1"))
    if name == "stand-in":
        import stand_ins
        return stand_ins.Training() if num_gpus == 1 else stand_ins.TrainingOnGpus(num_gpus)
    if num_gpus > 1:
        import data_parallel
        return data_parallel.build(name, num_gpus)
    if name == "pictures":
        import data_preparation
        return built(data_preparation.Preparation)
    if name.startswith("pipeline-"):
        import pipeline_training
        return built(pipeline_training.Training, name)
    import training_models
    return training_models.build(name)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lines = Lines()
    training = build(sys.argv[1])
    gc.collect()
    gc.freeze()
    lines.say({"ready": True, **training.facts})
    while True:
        if "train" in lines.poll(None):
            lines.say(train(training, lines))


if __name__ == "__main__":
    main()
