"""The entry point of `gym`: nothing is loaded yet, so Ctrl-C can be quiet from the first moment."""

import signal

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it; Ctrl-C before that ends the process without a traceback."""
    told = signal.getsignal(signal.SIGINT)
    if told is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from nemo_gym.cli.main import main as run  # loading it takes 50 ms

    if told is signal.default_int_handler:
        signal.signal(signal.SIGINT, told)
    run()
