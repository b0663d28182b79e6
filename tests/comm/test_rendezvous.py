"""The meeting point lets in who knows the secret, drops and counts everybody else, and keeps little."""

from __future__ import annotations

import json
import secrets
import socket
import struct
import threading
import time
from contextlib import suppress
from datetime import timedelta

import pytest
import torch.distributed as dist

from isthmus.comm import rendezvous
from isthmus.comm.frames import MAGIC, NONCE, Seal, Stranger, Unframer, frame, key_of, proof
from isthmus.comm.guest import Gone, RendezvousStore, enter
from isthmus.comm.meet import meet
from isthmus.comm.rendezvous import KEYS, Rendezvous, most_bytes
from isthmus.comm.secret import new_secret, run_secret
from isthmus.errors import InputError, WorkerError

SECRET = b"a secret of sixteen letters or more"


@pytest.fixture
def point():
    with Rendezvous("127.0.0.1", 0, 2, SECRET) as made:
        yield made


@pytest.fixture
def come(point):
    """come(rank) enters as that worker; all have left in the end."""
    stores = []

    def one(rank: int, size: int = 2, secret: bytes = SECRET) -> RendezvousStore:
        store = enter(rank, size, ("127.0.0.1", point.port), secret, 10.0, time.monotonic() + 10)
        assert isinstance(store, RendezvousStore), store
        stores.append(store)
        return store

    yield one
    for store in stores:
        store.leave()


def dial(point) -> socket.socket:
    return socket.create_connection(("127.0.0.1", point.port), timeout=10)


def greeted(point) -> tuple[socket.socket, bytes]:
    """A connection, and the nonce that it begins with."""
    stream = dial(point)
    content = stream.recv(4 + len(MAGIC) + NONCE, socket.MSG_WAITALL)
    assert content[4:].startswith(MAGIC)
    return stream, content[4 + len(MAGIC) :]


def ended(stream: socket.socket) -> bytes:
    """What the other end still says before it closes the connection."""
    said = b""
    try:
        while came := stream.recv(1 << 16):
            said += came
    except ConnectionError:
        pass
    stream.close()
    return said


def until(condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_workers_tell_each_other_words(point, come):
    one, other = come(0), come(1)
    one.set("a", b"\0\xff")
    other.set("b", "words")
    assert other.get("a") == b"\0\xff"
    assert one.get("b") == b"words"
    assert one.check(["a", "b"])
    assert not one.check(["a", "c"])
    assert one.delete_key("b")
    assert not one.delete_key("b")
    with pytest.raises(RuntimeError, match=r"timed out after 0.05 s"):
        one.wait(["b"], timedelta(seconds=0.05))
    assert point.strangers == 0


def test_a_wait_does_not_keep_others_from_asking(come):
    one, other = come(0), come(1)
    got = []
    thread = threading.Thread(target=lambda: got.append(one.get("late")))
    thread.start()
    assert not one.check(["late"])
    other.set("late", b"now")
    thread.join(10)
    assert got == [b"now"]


def test_nobody_comes_in_when_all_have_met(point, come, capsys):
    one, other = come(0), come(1)
    dial(point).close()
    one.connected()
    assert point.listener is not None
    other.connected()
    until(lambda: point.listener is None)
    with pytest.raises(ConnectionRefusedError):
        dial(point)
    one.set("still", b"there")
    assert other.get("still") == b"there"
    assert "1 connection(s) to the meeting point were not of this run" in capsys.readouterr().err


def test_another_secret_is_refused_and_counted(point, come):
    come(0)
    with pytest.raises(
        InputError, match=r"the meeting point refused worker 1.* same ISTHMUS_SECRET or ISTHMUS_SECRET_FILE"
    ):
        come(1, secret=b"another one, and long enough")
    assert point.strangers == 1
    assert come(1).check([])


def test_a_meeting_point_that_does_not_know_the_secret():
    """A worker does not believe whoever listens there."""
    with socket.create_server(("127.0.0.1", 0)) as fake:

        def pretend():
            stream, _ = fake.accept()
            stream.sendall(frame(MAGIC + bytes(NONCE)))
            stream.recv(1 << 10)
            stream.sendall(frame(bytes(32) + b"{}"))
            stream.recv(1)
            stream.close()

        thread = threading.Thread(target=pretend)
        thread.start()
        said = enter(1, 2, fake.getsockname(), SECRET, 0.3, time.monotonic() + 0.3)
        thread.join(10)
    assert isinstance(said, str)
    assert "does another program have that port?" in said


def test_a_meeting_point_that_trickles():
    """A byte now and then does not keep a worker waiting beyond its time."""
    with socket.create_server(("127.0.0.1", 0)) as fake:
        over = threading.Event()

        def trickle():
            stream, _ = fake.accept()
            with stream, suppress(OSError):
                stream.sendall(struct.pack("!I", 40))
                while not over.wait(0.02):
                    stream.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        with socket.create_connection(fake.getsockname(), timeout=0.2) as stream, pytest.raises(TimeoutError):
            RendezvousStore(stream, 1, 2, SECRET, 60.0)
        over.set()
        thread.join(10)


@pytest.mark.parametrize("forged", ["garbage", "[]", "7", '["a"]'])
def test_what_others_write_to_the_store_of_torchrun(monkeypatch, forged):
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    agent = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    agent.set("isthmus/0/meeting", forged)
    with pytest.raises(WorkerError, match="somebody else has written to the store of torchrun's agent"):
        meet(1, 2, "127.0.0.1", agent.port, 10.0)


def hello(nonce: bytes, key: bytes = key_of(SECRET), rank: int = 1) -> bytes:
    mine, words = secrets.token_bytes(NONCE), json.dumps({"rank": rank, "size": 2}).encode()
    return frame(mine + proof(key, b"hello", nonce, mine, words) + words)


def test_a_hello_that_was_overheard_is_no_use(point):
    stream, nonce = greeted(point)
    overheard = hello(nonce)
    stream.sendall(overheard)
    assert stream.recv(1 << 10)
    stream.close()
    again, _ = greeted(point)
    again.sendall(overheard)
    assert ended(again) == frame(b"no")
    until(lambda: point.strangers == 1)


def test_a_frame_that_was_changed_or_repeated_ends_the_connection(point):
    for spoil in (lambda sealed: sealed[:-1] + b"!", lambda sealed: sealed + sealed):
        stream, nonce = greeted(point)
        mine, words = bytes(NONCE), json.dumps({"rank": 1, "size": 2}).encode()
        stream.sendall(frame(mine + proof(key_of(SECRET), b"hello", nonce, mine, words) + words))
        stream.recv(1 << 10)
        seal = Seal(key_of(SECRET), nonce, mine, server=False)
        stream.sendall(spoil(seal.close(json.dumps({"what": "check", "keys": []}).encode())))
        ended(stream)
        until(lambda: not point.guests[1].open)


@pytest.mark.parametrize(
    "content",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 5000,
        b"\xff" * 5000,
        struct.pack("!I", 512 << 20) + b"x" * 10_000,
        frame(b""),
        frame(b"x" * 1000),
        frame(b"x" * 1025),
    ],
)
def test_garbage_is_dropped(point, come, content):
    stream, _ = greeted(point)
    try:
        stream.sendall(content)
        assert ended(stream) in (b"", frame(b"no"))
    finally:
        stream.close()
    until(lambda: point.strangers == 1 and not point.pending)
    assert come(1).check([])


@pytest.mark.parametrize(
    "words", [b"[]", b"{}", b"no json", b'{"rank": "x", "size": 2}', b'{"rank": null, "size": []}']
)
def test_a_hello_that_makes_no_sense(point, words):
    stream, nonce = greeted(point)
    mine = bytes(NONCE)
    stream.sendall(frame(mine + proof(key_of(SECRET), b"hello", nonce, mine, words) + words))
    ended(stream)
    assert point.thread.is_alive()
    assert not point.guests


def test_silence_has_its_time(point, come, monkeypatch):
    monkeypatch.setattr(rendezvous, "SECONDS", 0.1)
    stream, _ = greeted(point)
    stream.sendall(b"\0")  # a beginning, and then nothing
    assert ended(stream) == b""
    assert point.strangers == 1
    assert come(0).check([])


def test_many_connections_push_out_the_oldest(point, come, monkeypatch):
    monkeypatch.setattr(rendezvous, "STRANGERS", 4)
    streams = [greeted(point)[0] for _ in range(30)]
    until(lambda: point.strangers >= 22)
    assert len(point.pending) <= 8
    assert come(0).check([])
    for stream in streams:
        stream.close()


def test_a_worker_may_store_so_much(point, come):
    one = come(0)
    one.set("large", bytes(most_bytes(2)))
    one.set("large", bytes(most_bytes(2)))  # in its place
    with pytest.raises(Gone):
        one.set("more", b"x")
    one = come(0)  # what it had stored before is gone with it
    assert not one.check(["large"])
    for k in range(KEYS):
        one.set(f"key {k}", b"x")
    with pytest.raises(Gone):
        one.set("one more", b"x")
    with pytest.raises(Gone):
        come(0).set("k" * 1000, b"x")
    with pytest.raises(Gone):
        come(0)._ask("list")
    assert point.strangers == 0


def test_a_place_that_is_taken(point, come):
    first = come(1)
    with pytest.raises(WorkerError, match=r"there is already a worker 1, at 127\.0\.0\.1: was this one started twice"):
        come(1)
    assert first.check([])
    first.leave()
    until(lambda: not point.guests[1].open)
    assert come(1).check([])


def test_workers_that_were_told_of_another_number(point, come):
    one = come(0)
    with pytest.raises(InputError, match="told that there are 3 workers, the meeting point that there are 2"):
        come(1, size=3)
    with pytest.raises(InputError, match="worker 1 was told that there are 3 workers"):
        one.check([])


def test_who_asks_for_too_long_frames_is_a_stranger():
    frames = Unframer(4)
    frames.feed(frame(b"1234") + frame(b"")[:2])
    assert frames.next() == b"1234"
    assert frames.next() is None
    frames.feed(b"\0\0" + frame(b"12345")[:4])
    assert frames.next() == b""
    with pytest.raises(Stranger):
        frames.next()


def test_secrets(tmp_path):
    assert run_secret({}) == b""
    assert run_secret({"ISTHMUS_SECRET": "x" * 16}) == b"x" * 16
    file = tmp_path / "secret"
    file.write_text(new_secret() + "\n")
    assert run_secret({"ISTHMUS_SECRET_FILE": str(file)}) == file.read_text().strip().encode()
    assert run_secret({"ISTHMUS_SECRET": "y" * 20, "ISTHMUS_SECRET_FILE": str(file)}) == b"y" * 20
    for environ, words in (
        ({"ISTHMUS_SECRET": "short"}, "has 5 characters, not 16 to 4096: `openssl rand -hex 32` makes one"),
        ({"ISTHMUS_SECRET_FILE": str(tmp_path / "no")}, "cannot read the run secret in ISTHMUS_SECRET_FILE"),
    ):
        with pytest.raises(InputError, match=words):
            run_secret(environ)
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty: write a run secret into it"):
        run_secret({"ISTHMUS_SECRET_FILE": str(file)})


def test_worker_0_keeps_the_meeting_point(monkeypatch):
    """At the address that all were told, and nowhere else."""
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "ISTHMUS_MEETING", "ISTHMUS_SECRET", "ISTHMUS_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stores = {}
    threads = [
        threading.Thread(target=lambda k=k: stores.update({k: meet(k, 2, "127.0.0.1", port, 10)})) for k in (1, 0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    keeper = stores[0].keeper
    assert keeper.listener.getsockname() == ("127.0.0.1", port)
    assert stores[1].keeper is None
    assert stores[1].check(["here/0", "here/1"])
    for store in stores.values():
        store.connected()
    for store in stores.values():
        store.leave()
    assert not keeper.thread.is_alive()


def test_it_closes_even_if_its_thread_ends_first():
    """A message that arrives while it closes wakes the thread, which may be gone before it is woken for that."""
    point = Rendezvous("127.0.0.1", 0, 2, SECRET)
    wake = point.wake

    class Late:
        def send(self, letter: bytes) -> None:
            dial(point).close()
            point.thread.join(10)
            wake.send(letter)

        def close(self) -> None:
            wake.close()

    point.wake = Late()
    point.close()
    assert not point.thread.is_alive()
    assert wake.fileno() == -1
