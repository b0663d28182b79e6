"""The channel, and the stages that it is made of: select → encode → ship → (wait) → decode → merge."""

from isthmus.comm.channel.adaptive_bits import AdaptiveBits
from isthmus.comm.channel.channel import Channel
from isthmus.comm.channel.codec import AsIs, Codec, codec
from isthmus.comm.channel.merge import Add, Keep, Merge, Replace, Smooth
from isthmus.comm.channel.relayed import Relayed
from isthmus.comm.channel.ring import Ring
from isthmus.comm.channel.select import Active, All, Changed, Every, Gap
from isthmus.comm.channel.stages import Clip, Stages
from isthmus.comm.channel.trend import Trend
from isthmus.kernels.buffers import Buffers

__all__ = [
    "Active",
    "AdaptiveBits",
    "Add",
    "All",
    "AsIs",
    "Buffers",
    "Changed",
    "Channel",
    "Clip",
    "Codec",
    "Every",
    "Gap",
    "Keep",
    "Merge",
    "Relayed",
    "Replace",
    "Ring",
    "Smooth",
    "Stages",
    "Trend",
    "codec",
]
