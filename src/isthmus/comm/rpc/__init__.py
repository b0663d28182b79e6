"""Requests between workers at any time, over ZeroMQ: any thread asks, a thread of the worker that is asked answers."""

from isthmus.comm.rpc.door import Door
from isthmus.comm.rpc.handle import Handle
from isthmus.comm.rpc.service import LATER, Request, Service
from isthmus.comm.rpc.wire import MOST_OF_A_REQUEST

__all__ = ["LATER", "MOST_OF_A_REQUEST", "Door", "Handle", "Request", "Service"]
