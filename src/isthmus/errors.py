"""The two ways a run may end badly, each with a message that says what to do."""


class InputError(ValueError):
    """What the user gave is wrong: one line that says what and how to mend it. Exit status 2."""


class WorkerError(RuntimeError):
    """A worker did not arrive, did not answer in time, or died. Names worker, site, direction, step. Exit status 3."""
