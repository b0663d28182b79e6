"""Rows between workers: counted to the byte, and never waited for without a limit."""

from isthmus.comm.ledger import Ledger, Where
from isthmus.comm.process import Processes, default_backend
from isthmus.comm.transport import Hub, InProcess, Pending, Transport

__all__ = ["Hub", "InProcess", "Ledger", "Pending", "Processes", "Transport", "Where", "default_backend"]
