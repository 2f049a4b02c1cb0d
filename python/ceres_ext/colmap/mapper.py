# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""From images to a map: COLMAP's incremental mapper with this library's solver.

pycolmap's IncrementalMapper chooses and registers images, and triangulates, merges
and filters points. Here is the order of these steps, that of
pycolmap.incremental_mapping, and all adjustments are of bundle_adjustment().
"""

from __future__ import annotations

import collections.abc
import copy
import os
import shutil
import time
import typing

import numpy

from . import checkpoint
from .adjustment import INTRINSICS_FIELDS, bundle_adjustment, check_cameras
from .mapping_report import MappingReport
from .mirror import Mirror
from .position_priors import PositionPriors
from .refinement import (
    Callback,
    Path,
    Refinement,
    check_paths,
    copy_options,
    fix_rig,
    unreadable,
    without_matches,
)
from .rotation_averaging import Doubles

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from .adjustment import MapperValues

# COLMAP's constants. Longer tracks of new observations are stable, and are not
# refined again in local adjustments. A model that has not grown for so many trials
# starts from another pair.
_MAX_TRACK_LENGTH = 15
_MAX_INITIAL_TRIALS = 30
_NUM_RELAXATIONS = 2


def incremental_mapping(
    database_path: Path,
    image_path: Path,
    output_path: Path,
    options: typing.Any = None,
    input_path: Path = "",
    initial_image_pair_callback: Callback | None = None,
    next_image_callback: Callback | None = None,
    cancellation_token: typing.Any = None,
    *,
    mapping_report: MappingReport | None = None,
    resume: bool = False,
    checkpoint_frames: int = 50,
    antenna_offset: collections.abc.Sequence[float] | None = None,
    refine_antenna_offset: bool = False,
    **values: Unpack[MapperValues],
) -> dict[int, typing.Any]:
    """Recovers cameras, poses and points, as pycolmap.incremental_mapping does.

    database_path: of COLMAP, with features and verified matches. image_path: the
    folder of the images, for colours. output_path: the folder to which models are
    written, "0", "1", ...; it is created.
    options: a pycolmap.IncrementalPipelineOptions or a dict of its fields, or None
    for its defaults.
    input_path: a model that is continued, or "". The result is written to
    output_path itself.
    initial_image_pair_callback, next_image_callback: called after the first pair
    and after each further image.
    cancellation_token: a pycolmap.CancellationToken; mapping ends before the next
    image and keeps what it has.
    mapping_report: receives the stages, their times and the map.
    resume: continues a run that was stopped, from output_path/checkpoint; starts
    from the beginning if that does not exist. options must be the same.
    checkpoint_frames: registered frames between checkpoints; 0: none. There are
    none with input_path.
    antenna_offset: with options.use_prior_position, the place of the antenna whose
    positions the database has, (3,), with the axes of the reference camera of its
    rig, x right, y down, z forward, in the unit of the positions. None: the camera.
    refine_antenna_offset: the offset is estimated, from antenna_offset; positions are
    used once ten frames are registered. mapping_report.antenna_offset has the result.
    It needs images that look in several directions.
    values: for all adjustments, as for ceres_ext.solve, for example device="CUDA", and
    the bounds and soft priors of bundle_adjustment(). Limits of bound_intrinsics are
    those of options by default, priors are at the parameters of the database.

    Returns the models by number, pycolmap.Reconstruction. Two runs give the same
    bits, for any number of threads, also if one was stopped and resumed: a
    random_seed of -1 is 0, and pycolmap registers images on one thread. The exception
    are adjustments that pycolmap does itself, with
    mapper.ba_global_ignore_redundant_points3D.

    ImportError: pycolmap is missing or older than 4.2. OSError: a path does not
    exist. ValueError: the database holds nothing to map, is of another format, or an
    option is not supported; the message says which.

        maps = incremental_mapping("database.db", "images", "sparse")
        print(maps[0].summary())
    """
    offset = None if antenna_offset is None else _checked_offset(antenna_offset)
    return _Mapping(
        _inputs(database_path, image_path, output_path, options, input_path),
        {
            "INITIAL_IMAGE_PAIR_REG_CALLBACK": initial_image_pair_callback,
            "NEXT_IMAGE_REG_CALLBACK": next_image_callback,
        },
        cancellation_token,
        mapping_report or MappingReport(),
        checkpoint_frames if not os.fspath(input_path) else 0,
        (offset, refine_antenna_offset),
        dict(values),
    ).run(resume)


def _checked_offset(offset: collections.abc.Sequence[float]) -> Doubles:
    values = numpy.array(offset, numpy.float64)
    if values.shape != (3,) or not numpy.isfinite(values).all():
        raise ValueError(f"antenna_offset: expected 3 finite numbers, found {offset}")
    return values


class _Inputs(typing.NamedTuple):
    pycolmap: typing.Any
    output_path: str
    pipeline: typing.Any
    """A pycolmap.IncrementalPipeline, which holds options, database and models."""
    options: typing.Any
    is_continued: bool


def _inputs(
    database_path: Path,
    image_path: Path,
    output_path: Path,
    options: typing.Any,
    input_path: Path,
) -> _Inputs:
    pycolmap = check_paths(database_path, image_path)
    options = copy_options(options, pycolmap.IncrementalPipelineOptions, image_path)
    os.makedirs(output_path, exist_ok=True)
    models = pycolmap.ReconstructionManager()
    if os.fspath(input_path):
        if not os.path.isdir(input_path):
            raise FileNotFoundError(
                f"input_path: expected a folder, found none at {os.fspath(input_path)}"
            )
        models.read(os.fspath(input_path))
    pipeline = _open(pycolmap, os.fspath(database_path), options, models)
    check_cameras(pipeline.database_cache)
    return _Inputs(
        pycolmap, os.fspath(output_path), pipeline, options, models.size() > 0
    )


def _open(
    pycolmap: typing.Any, path: str, options: typing.Any, models: typing.Any
) -> typing.Any:
    try:
        database = pycolmap.Database.open(path)
        pipeline = pycolmap.IncrementalPipeline(options, database, models)
    except (RuntimeError, ValueError) as error:
        raise unreadable(pycolmap, path, error) from error
    if pipeline.database_cache.num_images() == 0:
        raise without_matches(path, options)
    if options.use_prior_position and pipeline.database_cache.num_pose_priors() == 0:
        raise ValueError(
            f"{path}: use_prior_position expects pose priors, found none"
        )
    return pipeline


class _Mapping(Refinement):
    """One call of incremental_mapping()."""

    def __init__(
        self,
        inputs: _Inputs,
        callbacks: dict[str, Callback | None],
        cancellation_token: typing.Any,
        report: MappingReport,
        checkpoint_frames: int,
        antenna: tuple[Doubles | None, bool],
        values: dict[str, typing.Any],
    ):
        options = inputs.options
        limits = {
            "min_focal_length_ratio": options.min_focal_length_ratio,
            "max_focal_length_ratio": options.max_focal_length_ratio,
            "max_extra_param": options.max_extra_param,
        }
        super().__init__(
            inputs.pycolmap, cancellation_token, report, {**limits, **values}
        )
        self._expect_intrinsics(inputs.pipeline.database_cache.cameras)
        self.output_path = inputs.output_path
        self.pipeline = inputs.pipeline
        self.options = options
        self.is_continued = inputs.is_continued
        self.models = inputs.pipeline.reconstruction_manager
        self.num_images = inputs.pipeline.database_cache.num_images()
        self.callbacks = callbacks
        self.checkpoint_frames = checkpoint_frames
        self.antenna = antenna
        offset, refines_offset = antenna
        if self.options.use_prior_position:
            self.positions = PositionPriors(
                self.pycolmap,
                inputs.pipeline.database_cache,
                self.options,
                offset,
                refines_offset,
            )
        elif offset is not None or refines_offset:
            raise ValueError(
                "antenna_offset and refine_antenna_offset: expected "
                "options.use_prior_position=True, found False"
            )
        self.max_refinements = self.options.ba_global_max_refinements
        self.max_refinement_change = self.options.ba_global_max_refinement_change
        self.triangulation = self.options.get_triangulation()
        self.settings = self.options.get_mapper()
        # With more, the first pair that a thread finds is taken.
        self.settings.num_threads = 1
        self.start = time.monotonic()
        self.state = checkpoint.State()
        self.mapper = self._new_mapper()
        self.frames_at_adjustment = 0
        self.points_at_adjustment = 0

    def run(self, resume: bool) -> dict[int, typing.Any]:
        self.report._begin(self.num_images)
        folder = os.path.join(self.output_path, "checkpoint")
        fingerprint = checkpoint.fingerprint(
            self.pycolmap,
            self.options,
            self.pipeline.database_cache,
            (
                repr(self.antenna) if self.positions is not None else "",
                [self.adjustment_values.get(name) for name in INTRINSICS_FIELDS],
            ),
        )
        resumed = None
        if resume and self.checkpoint_frames > 0:
            resumed = checkpoint.read(folder, fingerprint)
        self.state.fingerprint = fingerprint
        if resumed is not None:
            self._resume(resumed)
        fixed = self._fixed_centers()
        self._make_models(is_growing=self.is_continued or resumed is not None)
        if self.is_continued:
            self._restore_frame(fixed)
            with self.report._timed("files"):
                self.models.get(0).write(self.output_path)
        shutil.rmtree(folder, ignore_errors=True)
        results = {i: self.models.get(i) for i in range(self.models.size())}
        if self.positions is not None and self.positions.has_antenna:
            self.report.antenna_offset = self.positions.offset
        self.report._end(results)
        return results

    # Models.

    def _make_models(self, is_growing: bool) -> None:
        """Models until all images are in one; then with weaker requirements on
        the first pair."""
        for relaxation in range(self.state.relaxation, 2 * _NUM_RELAXATIONS + 1):
            if relaxation > self.state.relaxation:
                self.mapper.reset_initialization_stats()
                self.state.trial = 0
            self.state.relaxation = relaxation
            self._relax()
            is_done = self._make_models_of_pairs(is_growing)
            is_growing = False
            if is_done or self._is_stopped():
                return
            if self.mapper.num_total_reg_images() == self.num_images:
                return
            self.report._note("No more pairs: the first pair needs less from now on.")

    def _relax(self) -> None:
        defaults = self.options.get_mapper()
        relaxation = self.state.relaxation
        self.settings.init_min_num_inliers = defaults.init_min_num_inliers // (
            2 ** ((relaxation + 1) // 2)
        )
        self.settings.init_min_tri_angle = defaults.init_min_tri_angle / (
            2 ** (relaxation // 2)
        )

    def _make_models_of_pairs(self, is_growing: bool) -> bool:
        """True if no more models are wanted."""
        status = self.pycolmap.IncrementalPipelineStatus
        for trial in range(self.state.trial, self.options.init_num_trials):
            self.state.trial = trial
            if self._is_stopped():
                return True
            if not is_growing:
                self.models.add()
            is_growing = False
            index = self.models.size() - 1
            ended = self._make_model()
            if ended == status.SUCCESS:
                if self._keep_model(index):
                    return True
            elif ended == status.INTERRUPTED:
                self._end_model(index)
                return True
            else:
                self._discard_model(index)
                if ended != status.BAD_INITIAL_PAIR:
                    return bool(ended == status.UNKNOWN_SENSOR_FROM_RIG)
        return False

    def _make_model(self) -> typing.Any:
        model = self.models.get(self.models.size() - 1)
        self._begin_model(model)
        status = self.pycolmap.IncrementalPipelineStatus
        if _has_unknown_sensor(model):
            self.report._note(
                "Poses of sensors in a rig are unknown; set them, or map without rigs "
                "first."
            )
            return status.UNKNOWN_SENSOR_FROM_RIG
        if model.num_reg_frames() == 0:
            ended = self._start_model(model)
            if ended != status.SUCCESS:
                return ended
        if not self.state.is_resumed:
            self._call("INITIAL_IMAGE_PAIR_REG_CALLBACK")
        if not self._grow_model():
            return status.INTERRUPTED
        model = self.mapper.reconstruction
        if (
            model.num_reg_frames() > 0
            and model.num_reg_frames() != self.frames_at_adjustment
            and model.num_points3D() != self.points_at_adjustment
        ):
            self._refine_globally()
        return status.SUCCESS

    def _begin_model(self, model: typing.Any) -> None:
        self.mapper.begin_reconstruction(model)
        self.mirror = Mirror(model, keeps_places=True)
        if not self.state.is_resumed:
            self.frames_at_adjustment = model.num_reg_frames()
            self.points_at_adjustment = model.num_points3D()
            self.state.frames_at_checkpoint = model.num_reg_frames()
            self.state.frames_at_snapshot = model.num_reg_frames()

    def _keep_model(self, index: int) -> bool:
        """Keeps or discards a model that cannot grow. True if it is the last."""
        size = self.mapper.reconstruction.num_reg_images()
        total = self.mapper.num_total_reg_images()
        is_small = size < self.options.min_model_size
        if size == 0 or (
            self.options.multiple_models and self.models.size() > 1 and is_small
        ):
            self._discard_model(index)
        else:
            self._end_model(index)
        return bool(
            not self.options.multiple_models
            or self.models.size() >= self.options.max_num_models
            or total >= self.num_images - 1
        )

    def _end_model(self, index: int) -> None:
        model = self.models.get(index)
        model.update_point_3d_errors()
        self.mapper.end_reconstruction(False)
        self._align(model)
        self.mirror = None
        self.state.is_resumed = False
        if not self.is_continued:
            self._write(model, index, self.output_path)
        self.report._stage("model", model, f"model {index} is complete")

    def _discard_model(self, index: int) -> None:
        self.mapper.end_reconstruction(True)
        self.models.delete(index)
        self.mirror = None
        self.state.is_resumed = False

    def _align(self, model: typing.Any) -> None:
        """Rigs get the scale of the database. Poses with priors are metric."""
        if not self.options.use_prior_position:
            rigs = self.pipeline.database_cache.rigs
            self.pycolmap.align_reconstruction_to_orig_rig_scales(rigs, model)

    def _new_mapper(self) -> typing.Any:
        return self.pycolmap.IncrementalMapper(self.pipeline.database_cache)

    # Growth of a model.

    def _start_model(self, model: typing.Any) -> typing.Any:
        """Registers the first pair."""
        status = self.pycolmap.IncrementalPipelineStatus
        with self.report._timed("initial pair"):
            found = self._find_pair(model)
        if found is None:
            self.report._note("No initial pair was found.")
            return status.NO_INITIAL_PAIR
        # A given pair stays bad until it needs less.
        is_given = self.options.is_initial_pair_provided()
        is_bad = status.NO_INITIAL_PAIR if is_given else status.BAD_INITIAL_PAIR
        pair, second_from_first = found
        with self.report._timed("registration"):
            self.mapper.register_initial_image_pair(
                self.settings, *pair, second_from_first
            )
        triangulation = copy.deepcopy(self.triangulation)
        triangulation.min_angle = self.settings.init_min_tri_angle
        for image_id in pair:
            self._triangulate(model, image_id, triangulation)
        if model.num_points3D() == 0:
            return is_bad
        self._adjust_globally()
        model.normalize()
        with self.report._timed("filters"):
            self.mapper.filter_points(self.settings)
            self.mapper.filter_frames(self.settings)
        num_points = model.num_points3D()
        if (
            model.num_reg_frames() == 0
            or num_points == 0
            or num_points < self.settings.abs_pose_min_num_inliers
        ):
            self.report._note(f"Images {pair[0]} and {pair[1]} are a bad first pair.")
            return is_bad
        for image_id in pair:
            self._add_colors(model, image_id)
        self.frames_at_adjustment = model.num_reg_frames()
        self.points_at_adjustment = num_points
        self.state.frames_at_snapshot = model.num_reg_frames()
        self.report._stage("initial pair", model, f"images {pair[0]} and {pair[1]}")
        return status.SUCCESS

    def _find_pair(self, model: typing.Any) -> typing.Any:
        given = [self.options.init_image_id1, self.options.init_image_id2]
        if not self.options.is_initial_pair_provided():
            return self.mapper.find_initial_image_pair(self.settings, *given)
        if not all(model.exists_image(i) for i in given):
            return None
        pose = self.mapper.estimate_initial_two_view_geometry(self.settings, *given)
        return None if pose is None else (given, pose)

    def _grow_model(self) -> bool:
        """Registers images until none can be. False if mapping was stopped."""
        is_registered = was_registered = True
        while is_registered or was_registered:
            if self._is_stopped():
                return False
            was_registered = is_registered
            image_id = self._register_next()
            is_registered = image_id is not None
            if image_id is not None:
                self._add_image(image_id)
            if self.mapper.num_shared_reg_images() >= self.options.max_model_overlap:
                break
            # After a global refinement some images may be registered after all.
            if not is_registered and was_registered:
                self._refine_globally()
        return not self._is_stopped()

    def _register_next(self) -> int | None:
        """Registers the best next image: from the points that it sees, and if none
        can be, from its correspondences."""
        flags = [False, True]
        if self.options.structure_less_registration_only:
            flags = [True]
        elif not self.options.structure_less_registration_fallback:
            flags = [False]
        for without_points in flags:
            register = (
                self.mapper.register_next_structure_less_image
                if without_points
                else self.mapper.register_next_image
            )
            with self.report._timed("registration"):
                for trial, image_id in enumerate(
                    self.mapper.find_next_images(self.settings, without_points)
                ):
                    if register(self.settings, image_id):
                        return int(image_id)
                    num_images = self.mapper.reconstruction.num_reg_images()
                    if (
                        trial >= _MAX_INITIAL_TRIALS
                        and num_images < self.options.min_model_size
                    ):
                        break
        return None

    def _add_image(self, image_id: int) -> None:
        """Adds an image that was just registered to the map."""
        model = self.mapper.reconstruction
        self._triangulate(model, image_id, self.triangulation)
        self._refine_locally(image_id)
        self.report._stage("image", model, f"image {image_id}")
        if self.pipeline.check_run_global_refinement(
            model, self.frames_at_adjustment, self.points_at_adjustment
        ):
            self._refine_globally()
            self.frames_at_adjustment = model.num_reg_frames()
            self.points_at_adjustment = model.num_points3D()
        self._add_colors(model, image_id)
        self._write_snapshot(model)
        self._call("NEXT_IMAGE_REG_CALLBACK")
        self._write_checkpoint(model)

    def _add_colors(self, model: typing.Any, image_id: int) -> None:
        if not self.options.extract_colors:
            return
        with self.report._timed("colours"):
            for one in self._images_of_frame(model, image_id):
                path = os.path.join(self.options.image_path, model.image(one).name)
                if not os.path.isfile(path) or not model.extract_colors_for_image(
                    one, self.options.image_path
                ):
                    self.report._note(f"{path}: no image was read for its colours")

    # Adjustments.

    def _refine_locally(self, image_id: int) -> None:
        """Adjusts an image and its neighbours until their observations settle."""
        options = self.options.get_local_bundle_adjustment()
        for _ in range(self.options.ba_local_max_refinements):
            change = self._adjust_locally(options, image_id)
            if change < self.options.ba_local_max_refinement_change:
                break
            # Outliers are filtered by now.
            options.ceres.loss_function_type = self.pycolmap.LossFunctionType.TRIVIAL
        self.mapper.clear_modified_points3D()

    def _adjust_locally(self, options: typing.Any, image_id: int) -> float:
        """Returns the part of the observations that has changed."""
        neighbours = self.mapper.find_local_bundle(self.settings, image_id)
        images: set[int] = set()
        num_adjusted = num_changed = 0
        if neighbours:
            config = self._local_config([image_id, *neighbours])
            images = set(config.images)
            with self.report._timed("local adjustment"):
                summary = bundle_adjustment(
                    self.mirror,
                    options,
                    config,
                    print_summary=False,
                    **self.adjustment_values,
                )
            num_adjusted = summary.num_residuals // 2
            varied = set(config.variable_points)
            tracks = self.mapper.triangulator
            with self.report._timed("tracks"):
                num_changed += tracks.merge_tracks(self.triangulation, varied)
                num_changed += tracks.complete_tracks(self.triangulation, varied)
                num_changed += tracks.complete_image(self.triangulation, image_id)
        limits = (
            self.settings.filter_max_reproj_error,
            self.settings.filter_min_tri_angle,
        )
        manager = self.mapper.observation_manager
        with self.report._timed("filters"):
            num_changed += manager.filter_points3D_in_images(*limits, images)
            num_changed += manager.filter_points3D(
                *limits, self.mapper.get_modified_points3D()
            )
        return num_changed / num_adjusted if num_adjusted > 0 else 0.0

    def _local_config(self, image_ids: list[int]) -> typing.Any:
        """The images with the others of their frames, and new points. Cameras and
        sensors of rigs that also belong to other images are constant."""
        model = self.mapper.reconstruction
        config = self.pycolmap.BundleAdjustmentConfig()
        config.fix_gauge(self.pycolmap.BundleAdjustmentGauge.THREE_POINTS)
        frame_ids = {model.image(image_id).frame_id for image_id in image_ids}
        num_frames: dict[int, int] = {}
        num_images: dict[int, int] = {}
        for frame_id in sorted(frame_ids):
            frame = model.frame(frame_id)
            num_frames[frame.rig_id] = num_frames.get(frame.rig_id, 0) + 1
            for data in frame.data_ids:
                if data.sensor_id.type == self.pycolmap.SensorType.CAMERA:
                    config.add_image(data.id)
                    camera_id = model.image(data.id).camera_id
                    num_images[camera_id] = num_images.get(camera_id, 0) + 1
        self._fix_existing(config, frame_ids)
        frames_of_rigs = self.mapper.num_reg_frames_per_rig
        for rig_id, count in num_frames.items():
            if rig_id in self.settings.constant_rigs or count < frames_of_rigs[rig_id]:
                fix_rig(config, model.rig(rig_id))
        images_of_cameras = self.mapper.num_reg_images_per_camera
        for camera_id, count in num_images.items():
            is_constant = camera_id in self.settings.constant_cameras
            if is_constant or count < images_of_cameras[camera_id]:
                config.set_constant_cam_intrinsics(camera_id)
        for point_id in self.mapper.get_modified_points3D():
            point = model.point3D(point_id)
            if not point.has_error() or point.track.length() <= _MAX_TRACK_LENGTH:
                config.add_variable_point(point_id)
        return config

    def _adjustment_options(self) -> typing.Any:
        return self.options.get_global_bundle_adjustment()

    # Stops, snapshots and checkpoints.

    def _is_stopped(self) -> bool:
        limit: float = self.options.max_runtime_seconds
        return super()._is_stopped() or 0 < limit < time.monotonic() - self.start

    def _call(self, name: str) -> None:
        callback = self.callbacks[name]
        if callback is not None:
            callback()
            if self.mirror is not None:
                self.mirror.forget()

    def _write_snapshot(self, model: typing.Any) -> None:
        frequency = self.options.snapshot_frames_freq
        num_frames = model.num_reg_frames()
        if 0 < frequency <= num_frames - self.state.frames_at_snapshot:
            self.state.frames_at_snapshot = num_frames
            with self.report._timed("files"):
                folder = os.path.join(
                    self.options.snapshot_path, f"{int(time.time() * 1000):010d}"
                )
                os.makedirs(folder, exist_ok=True)
                model.write(folder)

    def _write_checkpoint(self, model: typing.Any) -> None:
        """Continues with the model that it has written, as a resumed run does."""
        num_frames = model.num_reg_frames()
        if self.checkpoint_frames <= 0 or (
            num_frames < self.state.frames_at_checkpoint + self.checkpoint_frames
        ):
            return
        self.state.frames_at_checkpoint = num_frames
        self.state.frames_at_adjustment = self.frames_at_adjustment
        self.state.points_at_adjustment = self.points_at_adjustment
        self.state.num_models = self.models.size() - 1
        if self.positions is not None:
            self.state.antenna_offset = self.positions.offset.tolist()
        self.mapper.end_reconstruction(False)
        folder = os.path.join(self.output_path, "checkpoint")
        with self.report._timed("files"):
            checkpoint.write(folder, self.state, model)
            self.models.delete(self.models.size() - 1)
            self.mapper = self._new_mapper()
            self._count_models()
            self.models.read(checkpoint.model_folder(folder, self.state))
        model = self.models.get(self.models.size() - 1)
        self.mapper.begin_reconstruction(model)
        self.mirror = Mirror(model, keeps_places=True)
        self.report._note(f"checkpoint with {num_frames} frames")

    def _resume(self, state: checkpoint.State) -> None:
        self.state = state
        folder = os.path.join(self.output_path, "checkpoint")
        for index in range(state.num_models):
            self.models.read(os.path.join(self.output_path, str(index)))
        self._count_models()
        self.models.read(checkpoint.model_folder(folder, state))
        self.frames_at_adjustment = state.frames_at_adjustment
        self.points_at_adjustment = state.points_at_adjustment
        if self.positions is not None:
            self.positions.offset = numpy.array(state.antenna_offset)
        state.is_resumed = True
        self.report._note(
            f"Resumed from a checkpoint with {state.frames_at_checkpoint} frames."
        )

    def _count_models(self) -> None:
        """Tells a new mapper which images the models have."""
        for index in range(self.models.size()):
            self.mapper.begin_reconstruction(self.models.get(index))
            self.mapper.end_reconstruction(False)

    # A model that is continued with poses that are fixed.

    def _fixed_centers(self) -> dict[int, typing.Any]:
        if not self.is_continued or not self.options.fix_existing_frames:
            return {}
        model = self.models.get(0)
        return {i: model.image(i).projection_center() for i in model.reg_image_ids()}

    def _restore_frame(self, fixed: dict[int, typing.Any]) -> None:
        """Models are normalised while they grow."""
        if len(fixed) < 3:
            return
        model = self.models.get(0)
        ids = [image_id for image_id in fixed if model.image(image_id).has_pose]
        found = self.pycolmap.estimate_sim3d(
            numpy.array([model.image(i).projection_center() for i in ids]),
            numpy.array([fixed[i] for i in ids]),
        )
        if found is not None:
            model.transform(found)


def _has_unknown_sensor(model: typing.Any) -> bool:
    """A camera of a rig has no pose."""
    rig_ids = {model.frame(image.frame_id).rig_id for image in model.images.values()}
    return any(
        pose is None
        for rig_id in rig_ids
        for sensor, pose in model.rig(rig_id).non_ref_sensors.items()
        if sensor.type.name == "CAMERA"
    )
