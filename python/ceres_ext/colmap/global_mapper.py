# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""From images to a map: COLMAP's global mapper with this library's solver.

All rotations are found at once from those between images, then all positions from
directions to points, then all is adjusted. The order of these steps is that of
pycolmap.global_mapping. pycolmap estimates relative poses, filters observations, and
triangulates; rotation averaging, positions and adjustments are of this library.
"""

from __future__ import annotations

import copy
import os
import typing

import numpy

from .adjustment import check_cameras
from .mapping_report import MappingReport
from .positioning import find_tracks, knows_focal_length, position
from .refinement import (
    Callback,
    Path,
    Refinement,
    check_paths,
    copy_options,
    unreadable,
    without_matches,
)
from .rotation_averaging import (
    Pairs,
    average_rotations,
    components,
    read_pairs,
    rotation_errors,
)

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from .adjustment import MapperValues

# COLMAP's constants: the part of cameras of known focal length below which maps are
# poor, the part of filtered points that ends a refinement, and its refinement after
# retriangulation.
_MIN_CALIBRATED = 0.5
_MIN_FILTERED = 1e-3
_MAX_REFINEMENTS = 5
_MAX_REFINEMENT_CHANGE = 0.0005
_MAX_ITERATIONS = 50
_MAX_LINEAR_ITERATIONS = 100

# A database has no poses that a stage could start from.
_REQUIRED = {
    "mapper.skip_rotation_averaging": False,
    "mapper.skip_track_establishment": False,
    "mapper.skip_global_positioning": False,
    "mapper.rotation_averaging.use_gravity": False,
    "mapper.rotation_averaging.skip_initialization": False,
    "mapper.global_positioning.generate_random_positions": True,
    "mapper.global_positioning.generate_random_points": True,
    "mapper.global_positioning.generate_scales": True,
    "mapper.global_positioning.optimize_positions": True,
    "mapper.global_positioning.optimize_points": True,
    "mapper.global_positioning.optimize_scales": True,
}


def global_mapping(
    database_path: Path,
    image_path: Path,
    output_path: Path,
    options: typing.Any = None,
    *,
    model_update_callback: Callback | None = None,
    cancellation_token: typing.Any = None,
    mapping_report: MappingReport | None = None,
    **values: Unpack[MapperValues],
) -> dict[int, typing.Any]:
    """Recovers cameras, poses and points at once, as pycolmap.global_mapping does.

    database_path: of COLMAP, with features and verified matches. image_path: the
    folder of the images, for colours. output_path: the folder to which models are
    written, "0", "1", ..., the largest first; it is created.
    options: a pycolmap.GlobalPipelineOptions or a dict of its fields, or None for
    its defaults.
    model_update_callback: called after the positions, after each iteration of
    adjustments, and after retriangulation.
    cancellation_token: a pycolmap.CancellationToken; mapping ends at the next such
    call and keeps what it has.
    mapping_report: receives the stages, their times and the map.
    values: as for ceres_ext.solve, for rotations, positions and adjustments, for
    example device="CUDA"; for adjustments also the bounds and soft priors of
    bundle_adjustment(), priors at the parameters of the database.

    Returns the models by number, pycolmap.Reconstruction; none if none has
    options.min_model_size frames. Two runs give the same bits: a random_seed of -1
    is 0, and pycolmap uses one thread.

    ImportError: pycolmap is missing or older than 4.2. OSError: a path does not
    exist. ValueError: the database holds nothing to map, is of another format, or an
    option is not supported; the message says which.

        maps = global_mapping("database.db", "images", "sparse")
        print(maps[0].summary())
    """
    pycolmap = check_paths(database_path, image_path)
    options = copy_options(options, pycolmap.GlobalPipelineOptions, image_path)
    _check_options(options)
    os.makedirs(output_path, exist_ok=True)
    mapping = _Mapping(
        pycolmap,
        options,
        model_update_callback,
        cancellation_token,
        mapping_report or MappingReport(),
        dict(values),
    )
    return mapping.run(os.fspath(database_path), os.fspath(output_path))


def _check_options(options: typing.Any) -> None:
    for name, required in _REQUIRED.items():
        found = options
        for part in name.split("."):
            found = getattr(found, part)
        if found != required:
            raise ValueError(
                f"options.{name}: expected {required}, found {found}, which is not "
                "supported"
            )


class _Failure(Exception):
    """No model of these images."""


class _Mapping(Refinement):
    """One call of global_mapping()."""

    filters_frames = False

    def __init__(
        self,
        pycolmap: typing.Any,
        options: typing.Any,
        callback: Callback | None,
        cancellation_token: typing.Any,
        report: MappingReport,
        values: dict[str, typing.Any],
    ):
        if options.num_threads > 0:
            values = {"num_threads": options.num_threads, **values}
        super().__init__(pycolmap, cancellation_token, report, values)
        self.options = options
        self.callback = callback
        self.stages = copy.deepcopy(options.mapper)
        self.stages.num_threads = options.num_threads
        self.stages.random_seed = options.random_seed
        self.triangulation = self.stages.get_retriangulation()
        self.settings = pycolmap.IncrementalMapperOptions()
        self.settings.random_seed = options.random_seed
        self.settings.num_threads = 1
        self.max_refinements = _MAX_REFINEMENTS
        self.max_refinement_change = _MAX_REFINEMENT_CHANGE

    def run(self, database_path: str, output_path: str) -> dict[int, typing.Any]:
        self.report._begin(0)
        cache, pairs = self._read(database_path)
        self.report.num_images = cache.num_images()
        self._expect_intrinsics(cache.cameras)
        models = []
        for part in self._find_parts(cache, pairs):
            try:
                models.append(self._map(*part))
            except _Failure as failure:
                self.report._note(str(failure))
            if self._is_stopped():
                break
        models.sort(key=lambda model: -model.num_reg_frames())
        results: dict[int, typing.Any] = {}
        for model in models:
            if model.num_reg_frames() >= self.options.min_model_size:
                index = len(results)
                results[index] = model
                with self.report._timed("colours"):
                    self._extract_colors(model)
                self._write(model, index, output_path)
                self.report._stage("model", model, f"model {index} is complete")
        self.report._end(results)
        return results

    def _read(self, path: str) -> tuple[typing.Any, Pairs]:
        """The DatabaseCache and its pairs of images."""
        with self.report._timed("database"):
            try:
                database = self.pycolmap.Database.open(path)
                cache = self.pycolmap.DatabaseCache.create(
                    database, self._cache_options(self.options.image_names)
                )
                check_cameras(cache)
                pairs = read_pairs(
                    self.pycolmap,
                    database,
                    cache,
                    self.options.decompose_relative_pose,
                    self.options.num_threads,
                )
            except (RuntimeError, IndexError) as error:
                raise unreadable(self.pycolmap, path, error) from error
        if len(pairs.first) == 0:
            raise without_matches(path, self.options)
        cameras = cache.cameras.values()
        num_calibrated = sum(map(knows_focal_length, cameras))
        if num_calibrated < _MIN_CALIBRATED * len(cameras):
            self.report._note(
                f"The focal lengths of {len(cameras) - num_calibrated} of "
                f"{len(cameras)} cameras are guesses. Maps may be poor; call "
                "pycolmap.calibrate_view_graph before."
            )
        return cache, pairs

    def _cache_options(self, image_names: typing.Any) -> typing.Any:
        options = self.pycolmap.DatabaseCacheOptions()
        options.min_num_matches = self.options.min_num_matches
        options.ignore_watermarks = self.options.ignore_watermarks
        options.image_names = set(image_names)
        return options

    def _find_parts(
        self, cache: typing.Any, pairs: Pairs
    ) -> list[tuple[typing.Any, Pairs]]:
        """A DatabaseCache and pairs for each model."""
        model = self.pycolmap.Reconstruction()
        model.load(cache)
        with self.report._timed("rotation averaging"):
            parts = components(model, pairs)
            if not self.options.multiple_models:
                parts = parts[:1]
            for part in parts:
                self._average(model, part)
            parts = [
                one
                for part in parts
                for one in components(model, self._filter_pairs(model, part))
            ]
        if not self.options.multiple_models:
            return [(cache, part) for part in parts[:1]]
        caches = [self._part_of(cache, model, part) for part in parts]
        return list(zip(caches, parts, strict=True))

    def _part_of(
        self, cache: typing.Any, model: typing.Any, pairs: Pairs
    ) -> typing.Any:
        """The cache of the frames of pairs."""
        ids = numpy.unique([pairs.first, pairs.second]).tolist()
        frame_ids = {model.image(i).frame_id for i in ids}
        if len(frame_ids) == model.num_frames():
            return cache
        names = [
            image.name
            for image in model.images.values()
            if image.frame_id in frame_ids
        ]
        return self.pycolmap.DatabaseCache.create_from_cache(
            cache, self._cache_options(names)
        )

    def _average(self, model: typing.Any, pairs: Pairs) -> None:
        options = self.stages.get_rotation_averaging()
        average_rotations(self.pycolmap, model, pairs, options, self.values)

    def _filter_pairs(self, model: typing.Any, pairs: Pairs) -> Pairs:
        """Pairs whose rotations are those of the model."""
        limit = self.stages.rotation_averaging.max_rotation_error_deg
        if limit <= 0:
            return pairs
        return pairs.select(rotation_errors(model, pairs) <= numpy.radians(limit))

    def _map(self, cache: typing.Any, pairs: Pairs) -> typing.Any:
        """The model of images that are connected."""
        model = self.pycolmap.Reconstruction()
        model.load(cache)
        pairs = self._rotate(model, pairs)
        self._position(cache, model, pairs)
        if not self._is_stopped_after("positions", model, "positions"):
            if not self.stages.skip_bundle_adjustment:
                self._adjust_repeatedly(model)
            if not self._is_stopped() and not self.stages.skip_retriangulation:
                self._retriangulate(cache, model)
                self._is_stopped_after("global", model, "retriangulation")
        model.update_point_3d_errors()
        self.pycolmap.align_reconstruction_to_orig_rig_scales(cache.rigs, model)
        return model

    def _is_stopped_after(self, kind: str, model: typing.Any, text: str) -> bool:
        model.update_point_3d_errors()
        self.report._stage(kind, model, text)
        if self.callback is not None:
            self.callback()
        return self._is_stopped()

    def _rotate(self, model: typing.Any, pairs: Pairs) -> Pairs:
        """Averages rotations once more, and returns the pairs of the largest set of
        frames, the only ones that stay registered."""
        with self.report._timed("rotation averaging"):
            self._average(model, pairs)
            parts = components(model, self._filter_pairs(model, pairs))
            if not parts:
                raise _Failure("No rotations of images agree.")
            ids = numpy.unique([parts[0].first, parts[0].second]).tolist()
            frame_ids = {model.image(i).frame_id for i in ids}
            for frame_id in model.reg_frame_ids():
                if frame_id not in frame_ids:
                    model.deregister_frame(frame_id)
        return parts[0]

    def _position(self, cache: typing.Any, model: typing.Any, pairs: Pairs) -> None:
        with self.report._timed("tracks"):
            tracks = find_tracks(cache, pairs, self.stages)
        with self.report._timed("global positioning"):
            angles = position(
                self.pycolmap,
                model,
                tracks,
                self.stages.get_global_positioning(),
                self.values,
            )
        if angles is None:
            raise _Failure("No positions were found for these images.")
        with self.report._timed("filters"):
            manager = self.pycolmap.ObservationManager(model)
            limit = self.stages.max_angular_reproj_error_deg
            # Cameras of unknown focal length may have twice the error.
            manager.filter_points3D_with_large_reprojection_error(
                2.0 * limit,
                model.point3D_ids(),
                self.pycolmap.ReprojectionErrorType.ANGULAR,
            )
            for row in numpy.flatnonzero(angles > numpy.radians(limit)).tolist():
                image = model.image(int(tracks.image[row]))
                number = int(tracks.point2d[row])
                if (
                    knows_focal_length(model.camera(image.camera_id))
                    and image.point2D(number).has_point3D()
                ):
                    manager.delete_observation(image.image_id, number)
            self._filter_angles(manager, model)
            self._filter_errors(manager, model, 10.0)
        model.normalize()

    def _filter_errors(
        self, manager: typing.Any, model: typing.Any, scale: float = 1.0
    ) -> int:
        return int(
            manager.filter_points3D_with_large_reprojection_error(
                scale * self.stages.max_normalized_reproj_error,
                model.point3D_ids(),
                self.pycolmap.ReprojectionErrorType.NORMALIZED,
            )
        )

    def _filter_angles(self, manager: typing.Any, model: typing.Any) -> None:
        manager.filter_points3D_with_small_triangulation_angle(
            self.stages.min_tri_angle_deg, model.point3D_ids()
        )

    def _adjust_repeatedly(self, model: typing.Any) -> None:
        """Adjusts all and filters observations, within limits that shrink."""
        num_iterations = self.stages.ba_num_iterations
        iteration = 0
        while iteration < num_iterations:
            if not self.stages.ba_skip_fixed_rotation_stage:
                options = self._full_options()
                options.constant_rig_from_world_rotation = True
                self._adjust_all(model, options)
            if not self.stages.ba_skip_joint_optimization_stage:
                self._adjust_all(model, self._full_options())
            model.normalize()
            if self._is_stopped_after("global", model, "global adjustment"):
                break
            with self.report._timed("filters"):
                manager = self.pycolmap.ObservationManager(model)
                num_filtered = 0
                is_settled = True
                while is_settled and iteration < num_iterations:
                    num_filtered += self._filter_errors(
                        manager, model, max(3 - iteration, 1)
                    )
                    is_settled = num_filtered <= _MIN_FILTERED * model.num_points3D()
                    iteration += is_settled
            if is_settled:
                break
            iteration += 1
        with self.report._timed("filters"):
            manager = self.pycolmap.ObservationManager(model)
            self._filter_errors(manager, model)
            self._filter_angles(manager, model)

    def _full_options(self) -> typing.Any:
        options = self.stages.get_bundle_adjustment()
        options.print_summary = False
        # False, the default here, would choose SPARSE_SCHUR.
        options.ceres.auto_select_solver_type = True
        return options

    def _adjustment_options(self) -> typing.Any:
        options = self._full_options()
        options.ceres.solver_options.max_num_iterations = _MAX_ITERATIONS
        options.ceres.solver_options.max_linear_solver_iterations = (
            _MAX_LINEAR_ITERATIONS
        )
        return options

    def _adjust_all(self, model: typing.Any, options: typing.Any) -> None:
        if model.num_points3D() == 0:
            raise _Failure("No points are left of these images.")
        self._adjust(model, options, self._global_config(model))

    def _retriangulate(self, cache: typing.Any, model: typing.Any) -> None:
        """Makes other points from all matches, and adjusts them."""
        model.delete_all_points2D_and_points3D()
        self.mapper = self.pycolmap.IncrementalMapper(cache)
        self.mapper.begin_reconstruction(model)
        with self.report._timed("triangulation"):
            for image_id in model.reg_image_ids():
                self.mapper.triangulate_image(self.triangulation, image_id)
        self._refine_globally()
        self.mapper.end_reconstruction(False)
        manager = self.pycolmap.ObservationManager(model)
        with self.report._timed("filters"):
            self._filter_errors(manager, model)
        self._adjust_all(model, self._full_options())
        model.normalize()
        with self.report._timed("filters"):
            self._filter_errors(manager, model)
            self._filter_angles(manager, model)

    def _extract_colors(self, model: typing.Any) -> None:
        folder = self.options.image_path
        names = [model.image(image_id).name for image_id in model.reg_image_ids()]
        num_missing = sum(
            not os.path.isfile(os.path.join(folder, name)) for name in names
        )
        if num_missing > 0:
            self.report._note(
                f"{folder}: {num_missing} of {len(names)} images were not read for "
                "colours"
            )
        if num_missing < len(names):
            model.extract_colors_for_all_images(folder, 1)
