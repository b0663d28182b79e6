"""The ways a run may end before its time, each with a message that says what to do."""


class InputError(ValueError):
    """What the user gave is wrong: one line that says what and how to mend it. Exit status 2."""


class WorkerError(RuntimeError):
    """A worker did not arrive, did not answer in time, or died. Names worker, site, direction, step. Exit status 3."""


class CodeError(WorkerError):
    """Code that a worker runs, mostly a model of one's own, raised an exception, and would again. Exit status 3."""


class Stopped(Exception):
    """A signal asked the run to end, and it did, in good order. Exit status 143 (SIGTERM) or 130 (SIGINT)."""

    def __init__(self, message: str, status: int):
        super().__init__(message)
        self.status = status
