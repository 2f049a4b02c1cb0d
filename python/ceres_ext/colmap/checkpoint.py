# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Checkpoints, from which a mapping that was stopped is resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import typing

_TABLES = ("cameras", "images", "keypoints", "two_view_geometries")


@dataclasses.dataclass
class State:
    """The state of a mapping beside its models."""

    fingerprint: str = ""
    relaxation: int = 0
    trial: int = 0
    num_models: int = 0
    """Complete models."""
    frames_at_adjustment: int = 0
    """Registered frames and points at the last global refinement."""
    points_at_adjustment: int = 0
    frames_at_checkpoint: int = 0
    frames_at_snapshot: int = 0
    antenna_offset: list[float] = dataclasses.field(default_factory=list)
    """Empty without measured positions."""
    is_resumed: bool = False
    """The model that grows was read from a checkpoint of another run."""


def fingerprint(
    pycolmap: typing.Any, options: typing.Any, cache: typing.Any, others: object
) -> str:
    """Differs if a resumed run would take other steps. Threads and times do not
    count. others: further options."""
    same = options.todict()
    for name in ("num_threads", "max_runtime_seconds", "image_path", "snapshot_path"):
        same.pop(name, None)
    same["mapper"].pop("num_threads", None)
    graph = cache.correspondence_graph
    text = repr(
        (
            pycolmap.__version__,
            json.dumps(same, default=repr, sort_keys=True),
            others,
            cache.num_images(),
            graph.num_image_pairs(),
            [graph.num_observations_for_image(i) for i in sorted(cache.images)],
        )
    )
    return hashlib.sha256(text.encode()).hexdigest()


def model_folder(folder: str, state: State) -> str:
    return os.path.join(folder, f"{state.num_models}-{state.frames_at_checkpoint}")


def write(folder: str, state: State, model: typing.Any) -> None:
    """The state is written last, and then names complete files."""
    models = model_folder(folder, state)
    os.makedirs(models, exist_ok=True)
    model.write_binary(models)
    path = os.path.join(folder, "state.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(dataclasses.asdict(state), file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)
    for entry in os.scandir(folder):
        if entry.is_dir() and entry.path != models:
            shutil.rmtree(entry.path, ignore_errors=True)


def read(folder: str, expected: str) -> State | None:
    """None if there is no checkpoint."""
    path = os.path.join(folder, "state.json")
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            state = State(**json.load(file))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected the state of a checkpoint, found something else; "
            "delete the folder or map without resume"
        ) from error
    if state.fingerprint != expected:
        raise ValueError(
            f"{path}: the database, the options or pycolmap have changed since this "
            "checkpoint; map without resume"
        )
    return state


def check_database(path: str) -> None:
    """ValueError if the file is not a database of COLMAP."""
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path}: expected a database of COLMAP, found an empty file")
    try:
        uri = pathlib.Path(path).absolute().as_uri() + "?mode=ro"
        connection = sqlite3.connect(uri, uri=True)
        try:
            found = connection.execute("SELECT name FROM sqlite_master").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ValueError(
            f"{path}: expected a database of COLMAP, found another or a damaged file "
            f"({error})"
        ) from error
    missing = [table for table in _TABLES if (table,) not in found]
    if missing:
        raise ValueError(
            f"{path}: expected a database of COLMAP, found one without the table "
            f"{missing[0]}"
        )
