"""Mini-batches are made on the host and copied to the device ahead of their step, by the thread that makes them."""

from __future__ import annotations

import threading

import torch
from device.plans import Plan, on_device, parts

from isthmus.minibatch import Batch, Prefetcher


def test_batches_are_copied_ahead_of_their_step(tmp_path, monkeypatch):
    book, copied, taken = parts(tmp_path, 1), [], []
    copy, take = Batch.to, Prefetcher.take

    def copying(batch, device):
        assert batch.x.device.type == "cpu"
        there = copy(batch, device)
        copied.append((batch.step, threading.current_thread().name))
        return there

    def taking(prefetcher, step):
        batch = take(prefetcher, step)
        if step:  # let the thread make what is permitted, as it does beside a step that takes its time
            with prefetcher._turn:
                prefetcher._turn.wait_for(lambda: prefetcher._next >= prefetcher._permitted, 10)
        taken.append((step, batch.x.device, [one for one, _ in copied]))
        return batch

    monkeypatch.setattr(Batch, "to", copying)
    monkeypatch.setattr(Prefetcher, "take", taking)
    on_device(lambda transport: Plan("distdgl", "sage").train(book, transport), 1)
    assert {thread for _, thread in copied} == {"batches"}
    assert all(device == torch.device("shadow", 0) for _, device, _ in taken)
    ahead = [max(known) - step for step, _, known in taken[1:-1]]
    assert min(ahead) >= 1
