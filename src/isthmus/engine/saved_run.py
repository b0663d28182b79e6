"""Read a trained run back from its folder: its config, its best weights, and the parts it was trained on."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import isthmus
from isthmus.comm import Transport
from isthmus.engine import checkpoint
from isthmus.engine.config import DTYPES, TrainConfig
from isthmus.engine.run_files import RunFacts
from isthmus.errors import InputError, enough_memory
from isthmus.files import read_as, read_json
from isthmus.nn import own_model
from isthmus.nn.models import MODELS, ModelConfig
from isthmus.partition import Book, is_parts_folder
from isthmus.tasks.losses import output_width
from isthmus.tasks.task import Task

_AGAIN = "copy the run folder again"


@dataclass(frozen=True)
class SavedRun:
    """A trained run; `best` are the weights with the best validation score, of step `best_step`."""

    folder: Path
    config: TrainConfig
    parts: Path
    """The parts folder when the run began."""
    fingerprint: str
    """The fingerprint of those parts."""
    model_class: str
    workers: int
    """The number of workers when the run was last started."""
    best_step: int
    best: dict[str, Tensor]
    features: int | None = None
    """The number of features of the graph it was trained on, and of its classes; None in older runs."""
    classes: int | None = None

    @staticmethod
    def read(folder: str | Path) -> SavedRun:
        run = Path(folder)
        if not (run / "config.json").is_file():
            raise InputError(f"{run} holds no run (no config.json): give the folder that `isthmus train` wrote")
        file, facts = run / "config.json", RunFacts.read(run)
        config = read_as(TrainConfig, read_json(file, _AGAIN), str(file), _AGAIN)
        model_class = facts.model_class or class_name(MODELS.get(config.model.model, nn.Module))
        progress, best, identity = checkpoint.read_best(run)
        if progress.best_step == 0:
            raise InputError(f"{run} ended before its first evaluation: go on with it by `isthmus train … --resume`")
        parts, fingerprint = Path(facts.parts), str(identity.get("parts"))
        return SavedRun(
            run,
            config,
            parts,
            fingerprint,
            model_class,
            facts.workers,
            progress.best_step,
            best,
            facts.features_in,
            facts.classes,
        )

    def book(self, moved_to: str | Path | None = None) -> Book:
        """Return the parts of the run: from the given folder, else the original place, else inside the run folder."""
        places = [self.parts, self.folder / "parts"] if moved_to is None else [Path(moved_to)]
        folder = next((place for place in places if is_parts_folder(place)), places[0])
        if moved_to is None and not is_parts_folder(folder):
            raise InputError(f"the parts of {self.folder} are no longer at {folder}: say where with --parts DIR")
        book = Book.read(folder)
        self.check(book)
        return book

    def check(self, book: Book) -> None:
        if book.fingerprint != self.fingerprint:
            raise InputError(
                f"{book.folder} holds other parts than {self.folder} was trained on: give those with --parts DIR"
            )

    def check_source(self, book: Book) -> None:
        """Refuse to score another graph that the weights do not suit."""
        if self.features not in (None, book.features):
            raise InputError(
                f"{book.name} has {book.features} features, {self.folder} was trained with {self.features}"
            )
        if self.config.features == "standard":
            raise InputError(
                f"{self.folder} was trained with --features standard, by means of its own graph, which are not kept: "
                "scale the features beforehand, and train with --features raw"
            )

    def shape(self, named: str | None = None, trust: bool = False) -> ModelConfig:
        """Return the model's config; refuse code that only the run folder names, since that may come from anybody.

        ``named`` is the model as the caller names it; ``trust`` allows the run folder to name one itself.
        """
        shape = self.config.model
        if named is not None:
            return replace(shape, model=named)
        if shape.model not in MODELS and not trust:
            raise InputError(
                f"{self.folder} has a model of its own, {shape.model}, which is imported and run only if you say so: "
                f"give --model {shape.model}, or --trust if you know who made that folder"
            )
        if shape.model not in MODELS:
            made_by = own_model(shape.model)
            if not (isinstance(made_by, type) and issubclass(made_by, nn.Module)):
                raise InputError(
                    f"{shape.model}, which {self.folder} names, is not a subclass of nn.Module: if it is a function "
                    f"that makes one, name it yourself with --model {shape.model}"
                )
        return shape

    def model(
        self, book: Book, own: nn.Module | None = None, named: str | None = None, trust: bool = False
    ) -> nn.Module:
        """Return the model of the config, or the caller's own, with the best weights; see `shape`."""
        if own is None:
            shape, dtype = self.shape(named, trust), DTYPES[self.config.dtype]
            with enough_memory(f"the model of {self.folder}"):
                own = shape.build(self.features or book.features, self.classes or book.classes, self.config.seed, dtype)
            if self.model_class != class_name(own):
                raise InputError(
                    f"{self.folder} was trained with another model ({self.model_class}) than {shape.model} makes "
                    f"({class_name(own)}): name that one with --model, or in Python give yours to "
                    "isthmus.engine.predict(…, model=…)"
                )
        self.load_into(own)
        return own

    def load_into(self, model: nn.Module) -> None:
        """Give a model the best weights."""
        try:
            model.load_state_dict(self.best)
        except RuntimeError:  # the original message lists every tensor, on many lines
            raise InputError(
                f"the weights of {self.folder} do not fit {class_name(model)}: give the model that was trained"
            ) from None


def class_name(model: nn.Module | type) -> str:
    """Return the class of a model as config.json stores it, such as isthmus.nn.models.SAGE."""
    kind = model if isinstance(model, type) else type(model)
    return f"{kind.__module__}.{kind.__qualname__}"


def described(
    model: nn.Module, config: TrainConfig, book: Book, transport: Transport, features: int | None = None
) -> dict[str, Any]:
    """Return the content of config.json; ``features``: the width of the model's input, if not that of the graph's."""
    return {
        **config.as_dict(),
        "model_class": class_name(model),
        "graph": book.name,
        "features_in": book.features if features is None else features,
        "classes": output_width(config.loss, Task.of(book), config.model.hidden),
        "parts": str(book.folder.resolve()),
        "workers": transport.size,
        "threads": torch.get_num_threads(),
        "device": str(transport.device),
        "versions": {
            "isthmus": isthmus.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
