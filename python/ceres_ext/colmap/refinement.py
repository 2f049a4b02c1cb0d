# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Both mappers: their arguments, and the refinement of a whole model."""

from __future__ import annotations

import collections.abc
import copy
import importlib
import os
import typing

from .._ceres_ext import SolverOptions
from . import checkpoint
from .adjustment import (
    INTRINSICS_FIELDS,
    PRIOR_WEIGHTS,
    bundle_adjustment,
    check_intrinsics,
)
from .mapping_report import MappingReport
from .mirror import Mirror
from .position_priors import PositionPriors

Path = str | os.PathLike[str]
Callback = collections.abc.Callable[[], object]


def check_paths(database_path: Path, image_path: Path) -> typing.Any:
    """Returns pycolmap."""
    pycolmap: typing.Any = importlib.import_module("pycolmap")
    if not hasattr(pycolmap, "IncrementalPipelineStatus"):
        raise ImportError(
            f"pycolmap: expected version 4.2 or newer, found {pycolmap.__version__}"
        )
    if not os.path.isfile(database_path):
        raise FileNotFoundError(
            f"database_path: expected a file, found none at {os.fspath(database_path)}"
        )
    if not os.path.isdir(image_path):
        raise FileNotFoundError(
            f"image_path: expected a folder, found none at {os.fspath(image_path)}"
        )
    checkpoint.check_database(os.fspath(database_path))
    return pycolmap


def copy_options(options: typing.Any, kind: typing.Any, image_path: Path) -> typing.Any:
    """The options of a mapper, of which kind is the class, with a random_seed."""
    if options is None or isinstance(options, dict):
        options = kind(options or {})
    if not isinstance(options, kind):
        raise TypeError(
            f"options: expected a pycolmap.{kind.__name__}, found "
            f"{type(options).__name__}"
        )
    options = copy.deepcopy(options)
    options.image_path = os.fspath(image_path)
    if options.random_seed < 0:
        options.random_seed = 0
    return options


def unreadable(pycolmap: typing.Any, path: str, error: Exception) -> ValueError:
    return ValueError(
        f"{path}: pycolmap {pycolmap.__version__} cannot read this database or "
        f"these options ({str(error).strip().splitlines()[-1]})"
    )


def without_matches(path: str, options: typing.Any) -> ValueError:
    return ValueError(
        f"{path}: expected images with at least {options.min_num_matches} "
        "verified matches, found none; run feature extraction and matching first"
    )


class Refinement:
    """Completes, adjusts and filters the model of an IncrementalMapper."""

    mapper: typing.Any
    """The pycolmap.IncrementalMapper."""
    settings: typing.Any
    """A pycolmap.IncrementalMapperOptions."""
    triangulation: typing.Any
    """A pycolmap.IncrementalTriangulatorOptions."""
    filters_frames = True
    """Frames with few observations or degenerate cameras leave the model."""
    positions: PositionPriors | None = None
    """Measured positions, in whose frame and unit the model is."""
    mirror: Mirror | None = None
    """The mirror of the model that grows."""
    max_refinements: int
    max_refinement_change: float
    """Part of the observations; a smaller change ends a refinement."""

    def __init__(
        self,
        pycolmap: typing.Any,
        cancellation_token: typing.Any,
        report: MappingReport,
        values: dict[str, typing.Any],
    ):
        self.pycolmap = pycolmap
        self.cancellation_token = cancellation_token
        self.report = report
        intrinsics = {k: values[k] for k in INTRINSICS_FIELDS if k in values}
        self.values = {k: value for k, value in values.items() if k not in intrinsics}
        self.adjustment_values = {**self.values, **intrinsics}
        # Wrong ones are found before the work.
        SolverOptions(**self.values)
        check_intrinsics(intrinsics)

    def _expect_intrinsics(
        self, cameras: collections.abc.Mapping[int, typing.Any]
    ) -> None:
        """Soft priors of all adjustments are at the parameters of the database."""
        if any(self.adjustment_values.get(name) for name in PRIOR_WEIGHTS):
            self.adjustment_values["expected_intrinsics"] = {
                camera_id: camera.params.tolist()
                for camera_id, camera in cameras.items()
            }

    def _is_stopped(self) -> bool:
        token = self.cancellation_token
        return token is not None and bool(token.is_cancelled)

    def _triangulate(
        self, model: typing.Any, image_id: int, options: typing.Any
    ) -> None:
        with self.report._timed("triangulation"):
            for one in self._images_of_frame(model, image_id):
                self.mapper.triangulate_image(options, one)

    def _images_of_frame(self, model: typing.Any, image_id: int) -> list[int]:
        camera = self.pycolmap.SensorType.CAMERA
        frame = model.frame(model.image(image_id).frame_id)
        return [data.id for data in frame.data_ids if data.sensor_id.type == camera]

    def _refine_globally(self) -> None:
        """Completes and adjusts the whole model until its observations settle."""
        model = self.mapper.reconstruction
        with self.report._timed("tracks"):
            self.mapper.complete_and_merge_tracks(self.triangulation)
            self.mapper.retriangulate(self.triangulation)
        for _ in range(self.max_refinements):
            num_observations = model.compute_num_observations()
            self._adjust_globally()
            if self.positions is None:
                model.normalize()
            with self.report._timed("tracks"):
                num_changed = self.mapper.complete_and_merge_tracks(self.triangulation)
            with self.report._timed("filters"):
                num_changed += self.mapper.filter_points(self.settings)
            if (
                num_changed < self.max_refinement_change * num_observations
                or num_observations == 0
            ):
                break
        self.mapper.clear_modified_points3D()
        if self.filters_frames:
            with self.report._timed("filters"):
                self.mapper.filter_frames(self.settings)
        self.report._stage("global", model, "global refinement")

    def _adjustment_options(self) -> typing.Any:
        """The pycolmap.BundleAdjustmentOptions of the whole model."""
        raise NotImplementedError

    def _adjust_globally(self) -> None:
        options = self._adjustment_options()
        if self.settings.ba_global_ignore_redundant_points3D:
            with self.report._timed("adjustment by pycolmap"):
                self.mapper.adjust_global_bundle(self.settings, options)
            return
        self.mapper.observation_manager.filter_observations_with_negative_depth()
        model = self.mapper.reconstruction
        self._adjust(model, options, self._global_config(model))

    def _adjust(
        self, model: typing.Any, options: typing.Any, config: typing.Any
    ) -> None:
        if len(config.images) < 2:
            return
        mirror = self.mirror or model
        with self.report._timed("global adjustment"):
            if self.positions is None or not self.positions.adjust(
                mirror, options, config, self.adjustment_values
            ):
                bundle_adjustment(
                    mirror,
                    options,
                    config,
                    print_summary=False,
                    **self.adjustment_values,
                )

    def _global_config(self, model: typing.Any) -> typing.Any:
        config = self.pycolmap.BundleAdjustmentConfig()
        # Ceres takes fewer steps than with three points.
        config.fix_gauge(self.pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
        frame_ids = model.reg_frame_ids()
        for frame_id in frame_ids:
            for data in model.frame(frame_id).data_ids:
                if data.sensor_id.type == self.pycolmap.SensorType.CAMERA:
                    config.add_image(data.id)
        self._fix_existing(config, frame_ids)
        for rig_id in self.settings.constant_rigs:
            fix_rig(config, model.rig(rig_id))
        for camera_id in self.settings.constant_cameras:
            config.set_constant_cam_intrinsics(camera_id)
        return config

    def _fix_existing(
        self, config: typing.Any, frame_ids: collections.abc.Iterable[int]
    ) -> None:
        if self.settings.fix_existing_frames:
            for frame_id in self.mapper.existing_frame_ids.intersection(frame_ids):
                config.set_constant_rig_from_world_pose(frame_id)

    def _write(self, model: typing.Any, index: int, output_path: str) -> None:
        with self.report._timed("files"):
            folder = os.path.join(output_path, str(index))
            os.makedirs(folder, exist_ok=True)
            model.write(folder)


def fix_rig(config: typing.Any, rig: typing.Any) -> None:
    for sensor in rig.non_ref_sensors:
        config.set_constant_sensor_from_rig_pose(sensor)
