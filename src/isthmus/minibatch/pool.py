"""Run small tasks on a pool of threads, and requests to other workers one after another in an order that all share."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Arrive = Callable[[], None]
"""What waits for the answer to a request, and ends it."""
Turn = tuple[int, int]
"""The place of a request among all requests of a run: (step, place in its DAG)."""


@dataclass(eq=False)
class Task:
    """A piece of work of one DAG. It runs when all tasks that it comes after have ended."""

    dag: int
    run: Callable[[], Arrive | None]
    """A request may return what waits for its answer: the next one is made meanwhile."""
    cost: float = 0.0
    """The data that it has to handle: neighbours to look at, or rows times their width."""
    turn: Turn | None = None
    """For a request to other workers, its place in the order that all workers share."""
    waits: int = 0
    done: bool = False
    then: list[Task] = field(default_factory=list)


class Pool:
    """Threads that run tasks, the least by ``key`` first; others make requests, in the order of turns, and wait.

    Requests are made in lock-step by all workers, and there are as many in every DAG. So their order is fixed, by DAG
    and by place in it. One thread makes them and another waits for the answers: no thread of the pool ever does.
    """

    def __init__(
        self,
        threads: int,
        key: Callable[[Task], tuple],
        requests: int,
        first: int,
        failed: Callable[[BaseException], None],
    ):
        """``requests``: the requests of every DAG. ``first``: the first DAG. ``failed`` hears of the first error."""
        self.key, self.requests, self.failed = key, requests, failed
        self.seconds: dict[int, float] = {}
        """The time that tasks of these DAGs have worked, without that of requests. Who wants to know adds a DAG."""
        self._lock = threading.Lock()
        # Threads that wait for different things are not woken for each other.
        self._works, self._asks, self._arrives = (threading.Condition(self._lock) for _ in range(3))
        self._ready: list[tuple] = []
        self._requests: dict[Turn, Task] = {}
        self._next: Turn = first, 0
        self._number = itertools.count()
        self._closed = False
        self._arriving: deque[Task] = deque()
        work = [self._work] * threads + [self._ask, self._arrive] * bool(requests)
        self._threads = [threading.Thread(target=each, name="batches", daemon=True) for each in work]
        for thread in self._threads:
            thread.start()

    def add(self, task: Task, after: Iterable[Task] = ()) -> Task:
        """Add a task that runs after some others; return it."""
        with self._lock:
            for other in after:
                if not other.done:
                    other.then.append(task)
                    task.waits += 1
            if not task.waits:
                self._push(task)
        return task

    def close(self, timeout: float) -> None:
        """End the threads, each after the task that it is running."""
        self._stop()
        end = time.monotonic() + timeout
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _stop(self) -> None:
        with self._lock:
            self._closed = True
            for waiting in (self._works, self._asks, self._arrives):
                waiting.notify_all()

    def _push(self, task: Task) -> None:
        if task.turn is None:
            heapq.heappush(self._ready, (*self.key(task), next(self._number), task))
            self._works.notify()
        else:
            self._requests[task.turn] = task
            if task.turn == self._next:
                self._asks.notify()

    def _work(self) -> None:
        self._serve(lambda: heapq.heappop(self._ready)[-1] if self._ready else None, self._works)

    def _ask(self) -> None:
        self._serve(self._request, self._asks)

    def _arrive(self) -> None:
        self._serve(lambda: self._arriving.popleft() if self._arriving else None, self._arrives)

    def _request(self) -> Task | None:
        task = self._requests.pop(self._next, None)
        if task is not None:
            step, place = self._next
            self._next = (step, place + 1) if place + 1 < self.requests else (step + 1, 0)
        return task

    def _serve(self, find: Callable[[], Task | None], hears: threading.Condition) -> None:
        while True:
            task = arrive = None  # let go while it waits
            with self._lock:
                while not self._closed and (task := find()) is None:
                    hears.wait()
            if task is None:
                return
            begun = time.perf_counter()
            try:
                arrive = task.run()
            except BaseException as error:  # handed to the loop, which raises it
                self._stop()
                self.failed(error)
                return
            if arrive is None:
                self._end(task, 0.0 if task.turn else time.perf_counter() - begun)
            else:
                with self._lock:
                    task.run = arrive
                    self._arriving.append(task)
                    self._arrives.notify()

    def _end(self, task: Task, seconds: float) -> None:
        with self._lock:
            task.done, task.run = True, _nothing  # what it holds is let go now, not when cycles are looked for
            if task.dag in self.seconds:
                self.seconds[task.dag] += seconds
            for follower in task.then:
                follower.waits -= 1
                if not follower.waits:
                    self._push(follower)
            task.then.clear()


def _nothing() -> None:
    pass
