"""Options of benches."""


def option_adder(parser):
    """Adds one to `parser`: its name, a sentence to which its default is added, the default, and what argparse knows besides."""
    def add(name, sentence, default=None, **more):
        parser.add_argument(name, default=default, help=sentence + (" (default: %(default)s)" if default is not None else ""), **more)
    return add
