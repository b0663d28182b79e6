"""Rates as people write them, and what is said where no testbed can be made. Needs no root."""

from __future__ import annotations

import os

import pytest

from isthmus import testbed
from isthmus.errors import InputError
from isthmus.testbed import tools


@pytest.mark.parametrize(
    ("text", "rate", "again"),
    [
        ("300mbit", 3e8, "300mbit"),
        ("1gbit", 1e9, "1gbit"),
        (" 2.5 Gbit/s ", 2.5e9, "2.5gbit"),
        ("500kbit", 5e5, "500kbit"),
        ("0.1gbit", 1e8, "100mbit"),
    ],
)
def test_rates(text, rate, again):
    assert testbed.bits_per_second(text) == rate
    assert testbed.written(rate) == again


@pytest.mark.parametrize("text", ["", "fast", "300", "300mb", "-1gbit", "1gbit2", "nangbit"])
def test_a_rate_that_is_none(text):
    with pytest.raises(InputError, match="like 300mbit or 1gbit"):
        testbed.bits_per_second(text)


@pytest.mark.parametrize("text", ["1kbit", "1000gbit"])
def test_a_rate_out_of_range(text):
    with pytest.raises(InputError, match="not between 100kbit and 100gbit"):
        testbed.bits_per_second(text)


@pytest.mark.parametrize("hosts", [0, 201])
def test_too_few_or_too_many_hosts(hosts):
    with pytest.raises(InputError, match="1 to 200 hosts"):
        testbed.Testbed(hosts, "1gbit")


def test_only_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match=r"only root .* sudo"), testbed.Testbed(2, "1gbit"):
        pass


def test_without_its_programs(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools, "ELSEWHERE", "")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="needs the program ip: install iproute2"):
        tools.check()


def test_a_refusing_machine_is_quoted(monkeypatch):
    monkeypatch.setattr(tools, "program", lambda name: "false")
    with pytest.raises(InputError, match=r"`ip netns add x` failed \(status 1\): the testbed needs root outside"):
        tools.ip("netns", "add", "x")
