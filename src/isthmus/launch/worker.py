"""Run one worker in a process that `launch.supervise` watches: python -m isthmus.launch.worker."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from isthmus.errors import InputError, Stopped, WorkerError
from isthmus.files import os_error_line
from isthmus.launch.exit import leave
from isthmus.launch.paths import look_last


def main() -> int:
    _die_with_parent()
    look_last()
    from isthmus.launch.job import Job, join, run
    from isthmus.launch.place import detect

    job, place = Job.from_json(os.environ["ISTHMUS_JOB"]), detect()
    assert place is not None
    answers, transport = Path(os.environ["ISTHMUS_ANSWERS"]), None
    try:
        transport = join(place, job.timeout)
        summary = run(job, transport, place.local_size, last=True)
        if place.rank == 0:
            (answers / "summary").write_text(json.dumps(summary))
        (answers / f"sent-{place.rank}").write_text(json.dumps(transport.sent))
        return 0
    except (InputError, WorkerError) as error:  # the starter prints it, once
        (answers / f"error-{place.rank}").write_text(str(error))
        return 2 if isinstance(error, InputError) else 3
    except OSError as error:
        (answers / f"error-{place.rank}").write_text(os_error_line(error))
        return 2
    except Stopped as end:
        (answers / f"error-{place.rank}").write_text(str(end))
        return end.status
    except (Exception, SystemExit) as error:  # mostly in a user's model: the starter prints it, once
        (answers / f"trace-{place.rank}").write_text(traceback.format_exc())
        (answers / f"error-{place.rank}").write_text(f"worker {place.rank} raised {_described(error)}")
        return 1
    finally:
        if transport is not None:
            transport.close()


def _described(error: BaseException) -> str:
    """Return the first line of an error, and the line of the user's own code, not of an installed package."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said} ({Path(own[-1].filename).name}, line {own[-1].lineno})"


def _die_with_parent() -> None:
    """End this worker when its starter is gone, whatever it is doing (on Linux the kernel does it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(os.environ["ISTHMUS_PARENT"]):
        sys.exit(1)


if __name__ == "__main__":
    leave(main())
