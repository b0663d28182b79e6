"""Draw bag-of-words features: how often each word of a vocabulary occurs in the text of a node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isthmus.graph.graph import SparseRows
from isthmus.graph.presets import Preset

TOPIC = 0.05  # share of the vocabulary that belongs to the topic of a class
SPREAD = 0.5  # of the lengths of texts, log-normal


def draw_words(preset: Preset, y: np.ndarray, rng: Callable[[str], np.random.Generator]) -> SparseRows:
    """Draw the counts of words, float32 [N, F], given the class y of every node.

    Frequencies fall as in language (Zipf's law), so that a few words are in most texts. A word is one of the topic of
    the node's class with probability ``signal``, else any word. Counts are left as they are, so that the
    rows of a layer change by much in a step of an optimizer.
    """
    draw, width = rng("words"), preset.features
    frequency = (np.arange(width) + 5.0) ** -0.8
    frequency /= frequency.sum()
    topics = [np.sort(draw.choice(width, max(1, round(TOPIC * width)), replace=False)) for _ in range(preset.classes)]
    length = np.maximum(draw.lognormal(np.log(preset.words), SPREAD, len(y)).astype(np.int64), 3)
    node = np.repeat(np.arange(len(y)), length)
    word = draw.choice(width, size=len(node), p=frequency)
    about = draw.random(len(node)) < preset.signal
    for label, topic in enumerate(topics):
        at = np.flatnonzero(about & (y[node] == label))
        word[at] = draw.choice(topic, size=len(at), p=frequency[topic] / frequency[topic].sum())
    keys, counts = np.unique(node * width + word, return_counts=True)
    indptr = np.concatenate([[0], np.bincount(keys // width, minlength=len(y)).cumsum()])
    return SparseRows(indptr, (keys % width).astype(np.int32), counts.astype(preset.dtype), width)
