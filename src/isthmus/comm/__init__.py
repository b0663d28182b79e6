"""Rows between workers: what is sent, when, and how; counted to the byte, and never waited for without a limit."""

from isthmus.comm import flags
from isthmus.comm.buffers import Buffers
from isthmus.comm.channel import Channel
from isthmus.comm.codec import AsIs, Codec, codec
from isthmus.comm.ledger import PROBE, Ledger, Where
from isthmus.comm.links import BACKWARD, FORWARD, Ends, Links
from isthmus.comm.process import Processes
from isthmus.comm.ring import Ring
from isthmus.comm.select import All, Changed, Every, Gap
from isthmus.comm.stages import Add, Clip, Keep, Merge, Replace, Smooth, Stages
from isthmus.comm.sums import sum_coded
from isthmus.comm.transport import Hub, InProcess, Pending, Transport

__all__ = [
    "BACKWARD",
    "FORWARD",
    "PROBE",
    "Add",
    "All",
    "AsIs",
    "Buffers",
    "Changed",
    "Channel",
    "Clip",
    "Codec",
    "Ends",
    "Every",
    "Gap",
    "Hub",
    "InProcess",
    "Keep",
    "Ledger",
    "Links",
    "Merge",
    "Pending",
    "Processes",
    "Replace",
    "Ring",
    "Smooth",
    "Stages",
    "Transport",
    "Where",
    "codec",
    "flags",
    "sum_coded",
]
