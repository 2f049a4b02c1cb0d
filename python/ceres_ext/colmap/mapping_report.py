# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The stages of a mapping and their times: lines, a bar, a page."""

from __future__ import annotations

import collections.abc
import contextlib
import html
import importlib.resources
import json
import os
import time
import typing

import numpy
import numpy.typing

_BAR_WIDTH = 30
# More are not told apart on a screen.
_MAX_POINTS_OF_PAGE = 20000
# Stages whose time is that of solvers.
_OPTIMISATION = (
    "local adjustment",
    "global adjustment",
    "adjustment by pycolmap",
    "rotation averaging",
    "global positioning",
)


class MappingStage(typing.NamedTuple):
    """The model after a step of its growth."""

    kind: str
    """"initial pair", "image", "positions" (of all images at once), "global" (a
    refinement of all) or "model" (it is complete)."""
    text: str
    seconds: float
    """Since the mapping began."""
    num_images: int
    """Registered images."""
    num_points: int
    num_observations: int
    error: float
    """Mean reprojection error in pixels."""


class MappingReport:
    """Collects the stages of incremental_mapping() or global_mapping().

    stream: for example sys.stderr; receives a line for each stage, and a bar if it
    is a terminal. None: nothing is printed.

        report = ceres_ext.colmap.MappingReport(sys.stderr)
        incremental_mapping("database.db", "images", "sparse", mapping_report=report)
        print(report.summary())
        report.write_html("map.html")
    """

    stages: list[MappingStage]
    """The steps of growth, in their order."""
    notes: list[str]
    """Steps that did not succeed, and checkpoints."""
    seconds: dict[str, float]
    """Seconds spent, by kind of work; "other" has the rest."""
    calls: dict[str, int]
    """Calls, by kind of work."""
    num_images: int
    """Images of the database that may be registered."""
    antenna_offset: numpy.typing.NDArray[numpy.float64] | None
    """(3,), of incremental_mapping with measured positions."""

    def __init__(self, stream: typing.TextIO | None = None):
        self.stages = []
        self.notes = []
        self.seconds = {}
        self.calls = {}
        self.num_images = 0
        self.antenna_offset = None
        self._stream = stream
        self._start = 0.0
        self._maps: list[dict[str, typing.Any]] = []

    @property
    def optimization_seconds(self) -> float:
        """Seconds spent in rotations, positions and adjustments, with reading and
        writing models."""
        return sum(self.seconds.get(name, 0.0) for name in _OPTIMISATION)

    def summary(self) -> str:
        """A line for each kind of work: seconds, calls, part of the whole."""
        total = sum(self.seconds.values())
        lines = [
            f"{len(self._maps)} models of {self.num_images} images in {total:.2f} s, "
            f"{self.optimization_seconds:.2f} s of it in optimisation"
        ]
        for name, seconds in sorted(self.seconds.items(), key=lambda one: -one[1]):
            calls = self.calls.get(name)
            lines.append(
                f"  {name:24}{seconds:9.3f} s {100 * seconds / max(total, 1e-9):5.1f} %"
                + (f"  {calls} calls" if calls else "")
            )
        return "\n".join(lines)

    def write_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page that needs no other file: the maps, the error and the
        number of images over time, and where time was spent."""
        page = (
            importlib.resources.files(__package__)
            .joinpath("mapping_report.html")
            .read_text(encoding="utf-8")
        )
        data = {
            "stages": [stage._asdict() for stage in self.stages],
            "seconds": self.seconds,
            "maps": self._maps,
        }
        # "</" would end the script.
        text = json.dumps(data).replace("</", "<\\/")
        page = page.replace("SUMMARY", html.escape(self.summary()))
        with open(path, "w", encoding="utf-8") as file:
            file.write(page.replace("DATA", text))

    # The mapper calls these.

    def _begin(self, num_images: int) -> None:
        self.stages.clear()
        self.notes.clear()
        self.seconds.clear()
        self.calls.clear()
        self._maps.clear()
        self.num_images = num_images
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def _timed(self, name: str) -> collections.abc.Iterator[None]:
        """Adds the time of a block to seconds[name]."""
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
            self.calls[name] = self.calls.get(name, 0) + 1

    def _stage(self, kind: str, model: typing.Any, text: str) -> None:
        with self._timed("report"):
            stage = MappingStage(
                kind,
                text,
                time.perf_counter() - self._start,
                model.num_reg_images(),
                model.num_points3D(),
                model.compute_num_observations(),
                model.compute_mean_reprojection_error(),
            )
            self.stages.append(stage)
            self._print(
                f"{stage.seconds:8.2f} s  {text}: {stage.num_images} images, "
                f"{stage.num_points} points, {stage.num_observations} observations, "
                f"{stage.error:.4f} px"
            )
            self._draw_bar(stage.num_images)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self._print(f"{time.perf_counter() - self._start:8.2f} s  {text}")

    def _end(self, models: dict[int, typing.Any]) -> None:
        elapsed = time.perf_counter() - self._start
        self.seconds["other"] = elapsed - sum(self.seconds.values())
        self._maps = [_map_of(model) for model in models.values()]
        if self._stream is not None and self._stream.isatty():
            self._stream.write("\r\x1b[K")

    def _print(self, line: str) -> None:
        if self._stream is not None:
            clear = "\r\x1b[K" if self._stream.isatty() else ""
            self._stream.write(f"{clear}{line}\n")
            self._stream.flush()

    def _draw_bar(self, num_images: int) -> None:
        if self._stream is not None and self._stream.isatty():
            done = _BAR_WIDTH * num_images // max(self.num_images, 1)
            bar = "#" * done + "-" * (_BAR_WIDTH - done)
            self._stream.write(f"[{bar}] {num_images}/{self.num_images} images")
            self._stream.flush()


def _map_of(model: typing.Any) -> dict[str, typing.Any]:
    """Positions of images and points, and colours, as lists."""
    points = list(model.points3D.values())
    points = points[:: 1 + len(points) // _MAX_POINTS_OF_PAGE]
    centers = [
        model.image(image_id).projection_center() for image_id in model.reg_image_ids()
    ]
    return {
        "images": numpy.round(centers, 4).tolist(),
        "points": numpy.round([point.xyz for point in points], 4).tolist(),
        "colors": [point.color.tolist() for point in points],
    }
