"""A trained run, read back from its folder: what it was asked, its best weights, the parts that it was trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from isthmus.engine import checkpoint
from isthmus.engine.config import DTYPES, TrainConfig
from isthmus.errors import InputError
from isthmus.nn.models import MODELS
from isthmus.partition import Book, is_parts_folder


@dataclass(frozen=True)
class SavedRun:
    """`best` are the weights with the best validation score, of step `best_step`."""

    folder: Path
    config: TrainConfig
    parts: Path
    """Where the parts were when the run began."""
    fingerprint: str
    """Of those parts."""
    model_class: str
    workers: int
    """How many it had at last."""
    best_step: int
    best: dict[str, Tensor]

    @staticmethod
    def read(folder: str | Path) -> SavedRun:
        run = Path(folder)
        if not (run / "config.json").is_file():
            raise InputError(f"{run} holds no run (no config.json): give the folder that `isthmus train` wrote")
        try:
            said: dict[str, Any] = json.loads((run / "config.json").read_text())
            config = TrainConfig.from_dict({f.name: said[f.name] for f in fields(TrainConfig) if f.name in said})
            parts = Path(said["parts"])
            model_class = said.get("model_class") or class_name(MODELS[config.model.model])
            workers = int(said["workers"])
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{run / 'config.json'} is damaged ({error!r}): copy the run folder again") from error
        progress, best, identity = checkpoint.read_best(run)
        if progress.best_step == 0:
            raise InputError(f"{run} ended before its first evaluation: go on with it by `isthmus train … --resume`")
        return SavedRun(run, config, parts, identity["parts"], model_class, workers, progress.best_step, best)

    def book(self, moved_to: str | Path | None = None) -> Book:
        """The parts of the run: where the caller says, else where they were, else inside the run folder."""
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

    def model(self, book: Book, own: nn.Module | None = None) -> nn.Module:
        """The model that the config describes, or the caller's own, with the best weights."""
        if own is None:
            config = self.config
            own = config.model.build(book.features, book.classes, config.seed, DTYPES[config.dtype])
            if self.model_class != class_name(own):
                raise InputError(
                    f"{self.folder} was trained with a model of its own ({self.model_class}), but predict builds the "
                    "one that config.json describes: in Python, give yours to isthmus.engine.predict(…, model=…)"
                )
        try:
            own.load_state_dict(self.best)
        except RuntimeError:  # its text lists every tensor, on many lines
            raise InputError(
                f"the weights of {self.folder} do not fit {class_name(own)}: give the model that was trained"
            ) from None
        return own


def class_name(model: nn.Module | type) -> str:
    """The class of a model, as config.json keeps it: isthmus.nn.models.SAGE."""
    kind = model if isinstance(model, type) else type(model)
    return f"{kind.__module__}.{kind.__qualname__}"
