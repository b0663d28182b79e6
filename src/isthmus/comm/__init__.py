"""Rows between workers: what is sent, when, and how; counted to the byte, and never waited for without a limit."""

from isthmus.comm import flags
from isthmus.comm.channel.buffers import Buffers
from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.codec import AsIs, Codec, codec
from isthmus.comm.channel.ring import Ring
from isthmus.comm.channel.select import All, Changed, Every, Gap
from isthmus.comm.channel.stages import Add, Clip, Keep, Merge, Replace, Smooth, Stages
from isthmus.comm.coded_allreduce import sum_coded
from isthmus.comm.ledger import PROBE, Ledger, Where
from isthmus.comm.links import BACKWARD, FORWARD, Ends, Links
from isthmus.comm.process import Processes
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
