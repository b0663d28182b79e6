"""A narrow network on one machine: hosts are network namespaces, joined by a bridge over limited links."""

from isthmus.testbed.hosts import Counters, Host
from isthmus.testbed.measure import measure
from isthmus.testbed.namespaces import sweep
from isthmus.testbed.rate import bits_per_second, written
from isthmus.testbed.spread import run_on_hosts
from isthmus.testbed.testbed import Testbed, queue_bytes

__all__ = [
    "Counters",
    "Host",
    "Testbed",
    "bits_per_second",
    "measure",
    "queue_bytes",
    "run_on_hosts",
    "sweep",
    "written",
]
