// A target that only precompiles a header needs a source.
