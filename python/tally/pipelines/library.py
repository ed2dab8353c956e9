"""libtally-pipelines.so by ctypes; what each call means is said in tally/pipelines.h.

The library is that of TALLY_PIPELINES_LIBRARY, or one installed or built beside this package, or the loader's.
"""
import ctypes
import functools
import os

NAME = "libtally-pipelines.so"
_DTYPES = {"bf16": 0, "fp16": 1}
_ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 4}
_NORMS = {"layer": 1, "rms": 2}
_CONCATS = {"first": 0, "last": 1}
_NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED: the library would be quicker, or there is no kernel for it

_POINTER, _SIZE, _INT, _ROWS = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int64
_ARGUMENTS = {  # behind the pipeline
    "AddLinear": (_POINTER, _SIZE, _POINTER, _INT, _INT),
    "AddActivation": (_INT,),
    "AddNorm": (_INT, _POINTER, _POINTER, ctypes.c_float),
    "AddConcat": (_INT,),
    "AddResidual": (),
    "Instantiate": (_ROWS,),
    "Launch": (_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _ROWS),
    "Query": (_ROWS, _POINTER),
    "InstantiateTraining": (_ROWS, _INT),
    "LaunchForward": (_POINTER, _POINTER, _SIZE, _POINTER, _SIZE, _POINTER, _ROWS),
    "LaunchBackward": (_POINTER, _POINTER, _SIZE, _POINTER, _POINTER, _POINTER, _SIZE, _ROWS),
    "QueryTraining": (_ROWS, _POINTER),
}


class PipelineError(RuntimeError):
    """What the library says of a call that failed: one sentence."""


class Refused(PipelineError):
    """The chain is better left to the library of the framework; the sentence says why."""


class NoLibrary(RuntimeError):
    """libtally-pipelines.so is not there."""


class Plan(ctypes.Structure):
    _fields_ = [("warpgroups", ctypes.c_int), ("weights_resident", ctypes.c_int),
                ("stages", ctypes.c_int), ("shared_bytes", ctypes.c_int), ("predicted_us", ctypes.c_double)]

    def as_dict(self):
        return {name: getattr(self, name) for name, _ in self._fields_}

    def __str__(self):
        weights = "weights resident" if self.weights_resident else \
            f"weights streamed through {self.stages} places"
        return f"{weights}, {self.warpgroups} warpgroups a block, {self.shared_bytes >> 10} KiB shared"


class Training(ctypes.Structure):
    _fields_ = [("forward", Plan), ("backward", Plan), ("saved_bytes", ctypes.c_int64), ("dz_bytes", ctypes.c_int64)]

    @property
    def predicted_us(self):
        return self.forward.predicted_us + self.backward.predicted_us

    def __str__(self):
        return f"forward: {self.forward}; backward: {self.backward}"


def candidates():
    """Where the library may be, in order."""
    named = os.environ.get("TALLY_PIPELINES_LIBRARY")
    if named:
        return [named]
    package = os.path.dirname(os.path.abspath(__file__))
    return [os.path.join(package, NAME)] + [os.path.normpath(os.path.join(package, *parts, NAME)) for parts in (
        (*[os.pardir] * 4, "tally"),  # PREFIX/lib/python3/dist-packages/tally/pipelines
        (*[os.pardir] * 3, "lib", "tally"),  # a bundle
        (*[os.pardir] * 3, "build", "release", "lib", "tally"),  # the sources
    )] + [os.path.join(prefix, "lib/tally", NAME) for prefix in ("/usr/local", "/usr")] + [NAME]


@functools.lru_cache(maxsize=None)
def _load(paths):
    for path in paths:
        if os.sep in path and not os.path.exists(path):
            continue
        try:
            library = ctypes.CDLL(path)
            library.tallyPipelineCreate.restype, library.tallyPipelineCreate.argtypes = ctypes.c_void_p, (ctypes.c_int,)
            library.tallyPipelineError.restype, library.tallyPipelineError.argtypes = ctypes.c_char_p, (_POINTER,)
            library.tallyPipelineDestroy.restype, library.tallyPipelineDestroy.argtypes = None, (_POINTER,)
            for name, arguments in _ARGUMENTS.items():
                function = getattr(library, "tallyPipeline" + name)
                function.restype, function.argtypes = ctypes.c_int, (_POINTER, *arguments)
            return library
        except (OSError, AttributeError) as error:
            if len(paths) == 1 or os.sep in path:
                raise NoLibrary(f"'{path}' is no {NAME}: {error}") from None
    raise NoLibrary(f"there is no {NAME}: install Tally, or name it with TALLY_PIPELINES_LIBRARY")


def load():
    """The library; raises NoLibrary."""
    return _load(tuple(candidates()))


class Pipeline:
    """One chain with its operands' addresses, instantiated for up to max_rows rows.

    `address` and `pitch` give those of an operand by its name, in the GPU's memory; who has that keeps it. Building is
    one thread's, launching any's. Raises Refused, or PipelineError. The pipeline lives until close().
    For training if the chain is; then launch_forward and launch_backward are there instead of launch.
    """

    def __init__(self, chain, address, pitch, max_rows):
        self._library, self._trains = load(), chain.trains
        self._handle = self._library.tallyPipelineCreate(_DTYPES[chain.dtype])
        if not self._handle:
            raise PipelineError("no memory for a pipeline")
        try:
            for layer in chain.layers:
                self._add(layer, address, pitch)
            if chain.trains:
                self._call("InstantiateTraining", max_rows, chain.with_dx())
            else:
                self._call("Instantiate", max_rows)
        except BaseException:
            self.close()
            raise

    def _add(self, layer, address, pitch):
        def at(name):
            return None if name is None else address(name)

        if layer.concat:
            self._call("AddConcat", _CONCATS[layer.concat])
        self._call("AddLinear", at(layer.weights), pitch(layer.weights), at(layer.bias), layer.columns, layer.out)
        if layer.activation:
            self._call("AddActivation", _ACTIVATIONS[layer.activation])
        if layer.norm:
            self._call("AddNorm", _NORMS[layer.norm], at(layer.scale), at(layer.shift), layer.epsilon)
        if layer.residual:
            self._call("AddResidual")

    def launch(self, stream, x, x_pitch, y, y_pitch, rows):
        """Addresses and a stream's handle; asynchronous, may be captured."""
        self._call("Launch", stream, x, x_pitch, y, y_pitch, rows)

    def launch_forward(self, stream, x, x_pitch, y, y_pitch, saved, rows):
        self._call("LaunchForward", stream, x, x_pitch, y, y_pitch, saved, rows)

    def launch_backward(self, stream, dy, dy_pitch, saved, dz, dx, dx_pitch, rows):
        """`dx`: None of a pipeline without."""
        self._call("LaunchBackward", stream, dy, dy_pitch, saved, dz, dx, dx_pitch, rows)

    def plan(self, rows):
        """A Plan; for training a Training."""
        plan = Training() if self._trains else Plan()
        self._call("QueryTraining" if self._trains else "Query", rows, ctypes.byref(plan))
        return plan

    def close(self):
        """Launches have ended. Twice is fine."""
        handle, self._handle = self._handle, None
        if handle:
            self._library.tallyPipelineDestroy(handle)

    def _call(self, name, *arguments):
        result = getattr(self._library, "tallyPipeline" + name)(self._handle, *arguments)
        if result != 0:
            sentence = self._library.tallyPipelineError(self._handle).decode("utf-8", "replace")
            raise (Refused if result == _NOT_SUPPORTED else PipelineError)(sentence)
