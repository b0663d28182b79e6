"""Predictions from drawn neighbours: the same for any number of workers, and the exact ones if all are drawn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from graphs import community_graph
from runs import ASKED, SHAPE, trained

from isthmus.comm import Hub
from isthmus.engine import PredictConfig, predict, sampled
from isthmus.errors import InputError


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_any_number_of_workers_predicts_the_same(tmp_path, model, monkeypatch):
    monkeypatch.setattr(sampled, "SIZE", 17)  # several turns, as unequal parts take
    config = replace(ASKED, dtype="float64", model=replace(SHAPE, model=model))
    book, run, _ = trained(community_graph(directed=True), 3, tmp_path, config)

    def of(workers, fanout):
        asked = PredictConfig(
            str(run), str(tmp_path / f"{workers}{fanout}.npy"), ("scores", "embedding"), fanout=fanout
        )
        return [
            np.load(file) for file in Hub(workers).run(lambda transport: predict(book, asked, transport))[0]["files"]
        ]

    exact, all_drawn, one, three = of(2, None), of(2, "-1,-1"), of(1, "3,2"), of(3, "3,2")
    for wanted, found in ((exact, all_drawn), (one, three)):
        for before, after in zip(wanted, found, strict=True):
            np.testing.assert_allclose(before, after, rtol=0, atol=1e-6)  # they are written as float32
    assert not np.allclose(exact[0], one[0], atol=1e-3)
    with pytest.raises(InputError, match="fewer than 3 times"):
        of(3, "3,2,1")
    with pytest.raises(InputError, match="more than 1 times"):
        of(3, "3")
    with pytest.raises(InputError, match="fanout is one number per layer"):
        of(3, "many")
