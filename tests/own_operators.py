"""Operators of sampling DAGs that replace the usual ones, as users name theirs."""

from __future__ import annotations

import random
import time

from isthmus.errors import InputError
from isthmus.minibatch import Operators


class Jittery(Operators):
    """The usual operators, each of which takes its time."""

    def neighbours(self, sampler, structure, rows, where):
        time.sleep(random.random() * 0.002)
        return super().neighbours(sampler, structure, rows, where)

    def features(self, nodes, out):
        time.sleep(random.random() * 0.002)
        return super().features(nodes, out)


class Failing(Operators):
    """Operators that fail at the third step."""

    def seeds(self, step):
        if step == 2:
            raise InputError("no seeds today")
        return super().seeds(step)
