"""Rows between workers: what is sent, when, and how; counted to the byte, and never waited for without a limit."""

from isthmus.comm import bits
from isthmus.comm.channel import (
    Active,
    AdaptiveBits,
    Add,
    All,
    AsIs,
    Buffers,
    Changed,
    Channel,
    Clip,
    Codec,
    Every,
    Gap,
    Keep,
    Merge,
    Relayed,
    Replace,
    Ring,
    Smooth,
    Stages,
    Trend,
    codec,
)
from isthmus.comm.coded_allreduce import sum_coded
from isthmus.comm.in_process import Hub, InProcess
from isthmus.comm.ledger import PROBE, Ledger, Where
from isthmus.comm.legs import BACKWARD, FORWARD, GATHER, SCATTER, ChannelId
from isthmus.comm.links import Ends, Links, Push
from isthmus.comm.process import Processes
from isthmus.comm.relays import RelaysOf
from isthmus.comm.transport import Pending, Transport

__all__ = [
    "BACKWARD",
    "FORWARD",
    "GATHER",
    "PROBE",
    "SCATTER",
    "Active",
    "AdaptiveBits",
    "Add",
    "All",
    "AsIs",
    "Buffers",
    "Changed",
    "Channel",
    "ChannelId",
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
    "Push",
    "Relayed",
    "RelaysOf",
    "Replace",
    "Ring",
    "Smooth",
    "Stages",
    "Transport",
    "Trend",
    "Where",
    "bits",
    "codec",
    "sum_coded",
]
