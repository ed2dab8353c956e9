"""Which functions of the driver fail how: the errors that each may return, by family, and the cases made of them."""
import re
from typing import NamedTuple

INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_PTX, INVALID_HANDLE = 1, 2, 200, 218, 400
NOT_READY, ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES, LAUNCH_FAILED, UNKNOWN = 600, 700, 701, 719, 999
# Forms of fault_driver.cc.
INSTEAD, AFTER, LOST = "instead", "after", "lost"

# The first that matches counts. What gives something back does so and then fails with an error of earlier work: if it
# did not, the driver would have forgotten it, not the executor.
FAMILIES = [
    (r"cuInit|cuDriverGetVersion|\w+(Get|Find|Can|Set(?!Access))\w*",
     [(INVALID_VALUE, INSTEAD), (UNKNOWN, INSTEAD)]),
    (r"cuGraphAdd\w+", [(OUT_OF_MEMORY, INSTEAD), (ILLEGAL_ADDRESS, LOST)]),
    (r"\w*(Destroy|Unload|Free|Release|Unregister|Unmap)\w*", [(INVALID_VALUE, AFTER), (ILLEGAL_ADDRESS, LOST)]),
    (r"cu(Module|Library)Load\w*|cuLink\w+",
     [(OUT_OF_MEMORY, INSTEAD), (INVALID_IMAGE, INSTEAD), (INVALID_PTX, INSTEAD)]),
    (r"cu\w*(Create|Alloc|Clone|Instantiate|Register|Reserve|Retain|MemMap|MemSetAccess|EndCapture)\w*",
     [(OUT_OF_MEMORY, INSTEAD), (ILLEGAL_ADDRESS, LOST)]),
    (r"cuLaunch\w*|cuGraphLaunch", [(LAUNCH_OUT_OF_RESOURCES, INSTEAD), (LAUNCH_FAILED, LOST)]),
    (r"cu(Event|Stream)Query", [(NOT_READY, INSTEAD), (LAUNCH_FAILED, LOST)]),
    (r"cu\w+Synchronize", [(UNKNOWN, INSTEAD), (ILLEGAL_ADDRESS, LOST)]),
    (r"cuMem(cpy|set|Prefetch)\w*|cuEventRecord\w*|cuStreamWait\w*|cuStreamWrite\w*|cuStreamBatch\w*",
     [(INVALID_VALUE, INSTEAD), (LAUNCH_FAILED, LOST)]),
    (r".*", [(INVALID_VALUE, INSTEAD), (UNKNOWN, INSTEAD)]),
]


# Cases that say nothing, as "PROGRAM FUNCTION CODE", and why.
NOT_TRIED = [
    r"capture_errors cuEventQuery 600",  # of an event in a capture no driver says "not ready"
    # Who waits for the value waits for ever, natively too.
    r"(stream_memory_ops|driver_streams|driver_per_thread) cuStream(Write|BatchMem)\w+ 1",
    r"zero_copy cuLaunchKernel 701",  # it looks at memory until the kernel writes there, and asks for no error
    r"managed_variables cuLibraryGet\w+ \d+",  # it follows the null pointer that the runtime then leaves it
]


class Case(NamedTuple):
    program: str
    function: str
    nth: int
    code: int
    form: str

    def __str__(self):
        what = "loses the context" if self.form == LOST else "fails"
        return f"{self.program}: call {self.nth} of {self.function} {what} with {self.code}"


def errors_of(function):
    return next(errors for pattern, errors in FAMILIES if re.fullmatch(pattern, function))


def one_per_function(cases, chance, num_losses):
    """A case of each function, of those under its cheapest program; and some that lose the context."""
    by_function, losses = {}, []
    for case in cases:
        if case.form == LOST:
            losses.append(case)
            continue
        others = by_function.setdefault(case.function, [])
        if not others or others[0].program == case.program:
            others.append(case)
    return sorted(chance.choice(others) for others in by_function.values()) + chance.sample(losses, num_losses)


def all_cases(profiles, calls):
    """Every one, those first that say most: for each function its first call under its cheapest program, and so on.

    profiles: program -> (seconds, {function: number of calls}).
    """
    cheapest_first = sorted(profiles, key=lambda program: profiles[program][0])
    ranked, seen = [], {}
    for program in cheapest_first:
        for function, count in sorted(profiles[program][1].items()):
            rank = seen[function] = seen.get(function, -1) + 1
            for nth in range(1, min(calls, count) + 1):
                for i, (code, form) in enumerate(errors_of(function)):
                    if any(re.fullmatch(case, f"{program} {function} {code}") for case in NOT_TRIED):
                        continue
                    # A lost context costs an executor, so fewer of those.
                    ranked.append(((rank * 8 if form == LOST else rank, nth, i), Case(program, function, nth, code, form)))
    return [case for _, case in sorted(ranked)]
