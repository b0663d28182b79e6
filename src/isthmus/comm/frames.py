"""The protocol of the meeting point: short frames, each with a proof of its sender.

::

    server → client   greeting:  MAGIC, nonce s
    client → server   hello:     nonce c, HMAC(key, "hello", s, c, words), words
    server → client   answer:    HMAC(key, "answer", s, c, words), words
    then both ways    HMAC(session key, direction, number of the frame, words), words

A frame is its length in four bytes and its content; one that is longer than the reader allows ends the connection
before it is read. The key is derived from the run secret, the session key from the key and both nonces: nobody can
answer, repeat or change a frame without the secret. Nothing is encrypted: workers only exchange addresses here.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

MAGIC = b"isthmus1"
NONCE = TAG = 32  # bytes
GREETING = len(MAGIC) + NONCE
MOST_OF_A_STRANGER = 1024  # bytes of a frame, before the other end has proven that it knows the secret
_LENGTH = struct.Struct("!I")


class Stranger(Exception):
    """An error: the other end does not speak this protocol, or does not know the secret."""


def frame(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


class Unframer:
    """A stream of bytes cut into frames; holds no more than one frame of allowed length and what came with it."""

    def __init__(self, most: int):
        self.most = most
        self.held = bytearray()

    def feed(self, content: bytes) -> None:
        self.held += content

    def next(self) -> bytes | None:
        """Return the next whole frame, or None; raise `Stranger` as soon as a frame is announced as too long."""
        if len(self.held) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self.held)
        if length > self.most:
            raise Stranger(f"a frame of {length} bytes, above {self.most}")
        end = _LENGTH.size + length
        if len(self.held) < end:
            return None
        content = bytes(self.held[_LENGTH.size : end])
        del self.held[:end]
        return content


def key_of(secret: bytes) -> bytes:
    return hashlib.sha256(b"isthmus meeting point\0" + secret).digest()


def proof(key: bytes, *parts: bytes) -> bytes:
    """Return the HMAC of the parts, including their lengths, so that no two lists of parts have the same."""
    return hmac.digest(key, b"".join(frame(part) for part in parts), "sha256")


def proven(tag: bytes, key: bytes, *parts: bytes) -> None:
    """Raise `Stranger` unless the tag is the proof of these parts; compares in constant time."""
    if not hmac.compare_digest(tag, proof(key, *parts)):
        raise Stranger("a wrong proof")


class Seal:
    """The proofs of the frames of one connection after its handshake, each valid once and in order."""

    def __init__(self, key: bytes, server_nonce: bytes, client_nonce: bytes, server: bool):
        self.key = proof(key, b"session", server_nonce, client_nonce)
        self.out, self.into = (b"server", b"client") if server else (b"client", b"server")
        self.written = self.read = 0

    def close(self, words: bytes) -> bytes:
        """Return a frame with these words and their proof."""
        tag = proof(self.key, self.out, str(self.written).encode(), words)
        self.written += 1
        return frame(tag + words)

    def open(self, content: bytes) -> bytes:
        """Return the words of a frame after checking their proof."""
        tag, words = content[:TAG], content[TAG:]
        proven(tag, self.key, self.into, str(self.read).encode(), words)
        self.read += 1
        return words
