# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Adjustment of a whole map with measured positions, as those of GPS."""

from __future__ import annotations

import types
import typing

import numpy

from .._ceres_ext import (
    ArrayProblem,
    CauchyLoss,
    EigenQuaternionManifold,
    EuclideanManifold,
    HuberLoss,
    SoftLOneLoss,
    SolverOptions,
    SubsetManifold,
    _product_manifold,
    solve,
)
from .._ceres_ext import ColmapModel as Model
from .adjustment import SOLVER_DEFAULTS, take_solver_options, write_back
from .mirror import read_reconstruction
from .rotation_averaging import Doubles, Flags, Numbers, invert, multiply

# COLMAP's constants: the standard deviation of positions without one, and the 95 %
# quantile of chi^2 with three degrees of freedom.
_FALLBACK_SIGMA = 1.0
_CHI_SQUARE = 7.814727903
_MIN_PRIORS = 3
# The standard deviation of an unknown antenna from its start, in the unit of the
# positions: without it the offset may run away, as along the optical axes of images
# that all look at one point.
_ANTENNA_SIGMA = 1.0
# With fewer frames an unknown antenna is not estimated, nor are positions used.
_MIN_FRAMES_OF_ANTENNA = 10
# Manifolds of poses: all varies, or the translation.
_POSE = _product_manifold(EigenQuaternionManifold(), EuclideanManifold(3))
_TRANSLATION = SubsetManifold(7, [0, 1, 2, 3])
# Times that a fit with a robust loss is repeated.
_FIT_ITERATIONS = 10
_LOSSES: dict[str, typing.Any] = {
    "TRIVIAL": lambda scale: None,
    "SOFT_L1": SoftLOneLoss,
    "CAUCHY": CauchyLoss,
    "HUBER": HuberLoss,
}


class PositionPriors:
    """The measured positions of a database, of cameras or of an antenna.

    offset: (3,), the place of the antenna with the axes of the reference camera of
    its rig, x right, y down, z forward, in the unit of the positions; None: the
    positions are those of the cameras. refines: the offset is estimated.
    """

    def __init__(
        self,
        pycolmap: typing.Any,
        cache: typing.Any,
        options: typing.Any,
        offset: Doubles | None,
        refines: bool,
    ):
        self.pycolmap = pycolmap
        self.has_antenna = offset is not None or refines
        self.start = numpy.zeros(3) if offset is None else offset
        self.offset = self.start
        self.refines = refines
        self.random_seed = options.random_seed
        self.loss_scale = options.prior_position_loss_scale
        self.loss = (
            CauchyLoss(self.loss_scale)
            if options.use_robust_loss_on_prior_position
            else None
        )
        camera = pycolmap.SensorType.CAMERA
        self._priors = {
            prior.corr_data_id.id: prior
            for prior in cache.pose_priors
            if prior.has_position() and prior.corr_data_id.sensor_id.type == camera
        }

    def adjust(
        self,
        model: typing.Any,
        options: typing.Any,
        config: typing.Any,
        values: dict[str, typing.Any],
    ) -> bool:
        """Moves a reconstruction to the positions, and adjusts all its images. False
        and nothing has changed if it has too few positions or they do not fit.

        options: a pycolmap.BundleAdjustmentOptions. config: a
        BundleAdjustmentConfig; its constant frames, sensors and cameras are.
        """
        image_ids = sorted(i for i in self._priors if config.has_image(i))
        num_frames = len({model.image(i).frame_id for i in image_ids})
        if num_frames < (_MIN_FRAMES_OF_ANTENNA if self.refines else _MIN_PRIORS):
            return False
        positions = numpy.array([self._priors[i].position for i in image_ids])
        covariances = numpy.array([self._covariance(i) for i in image_ids])
        metric = self._align(model, image_ids, positions, covariances)
        if metric is None:
            return False
        model.transform(metric)
        model.transform(self._fit(model, image_ids, positions, covariances))
        # Coordinates near zero; the scale stays.
        local = model.normalize(True)
        try:
            problem = _Problem(model, options, config, self.offset, self.refines)
            positions = positions + local.translation - self._places(model, image_ids)
            frame_ids = [model.image(i).frame_id for i in image_ids]
            problem.add_positions(frame_ids, positions, covariances, self.loss)
            if self.refines:
                problem.add_antenna(self.start)
            self.offset = problem.solve(values)
        finally:
            model.transform(local.inverse())
        return True

    def _covariance(self, image_id: int) -> Doubles:
        prior = self._priors[image_id]
        if prior.has_position_cov():
            return numpy.array(prior.position_covariance)
        return _FALLBACK_SIGMA**2 * numpy.eye(3)

    def _places(self, model: typing.Any, image_ids: list[int]) -> Doubles:
        """Places of cameras from their rigs, with the axes of the world; 0 with an
        antenna. They stay as they are during an adjustment."""
        places = numpy.zeros((len(image_ids), 3))
        for k, image_id in enumerate(image_ids):
            image = model.image(image_id)
            if not self.has_antenna and not image.is_ref_in_frame():
                rig_from_world = model.frame(image.frame_id).rig_from_world
                place = rig_from_world.inverse().translation
                places[k] = image.projection_center() - place
        return places

    def _align(
        self,
        model: typing.Any,
        image_ids: list[int],
        positions: Doubles,
        covariances: Doubles,
    ) -> typing.Any:
        """A Sim3d to the positions, or None."""
        variances = numpy.trace(covariances, axis1=1, axis2=2) / 3.0
        if positions.var(axis=0).sum() <= numpy.median(variances):
            return None  # They do not tell the scale.
        centers = numpy.array([model.image(i).projection_center() for i in image_ids])
        if self.refines:
            # There is no limit for errors of an unknown antenna.
            return self.pycolmap.estimate_sim3d(centers, positions)
        options = self.pycolmap.RANSACOptions(min_inlier_ratio=0.1, confidence=0.99)
        options.random_seed = self.random_seed
        options.max_error = numpy.sqrt(
            _CHI_SQUARE * numpy.median(variances)
        ) + numpy.linalg.norm(self.offset)
        found = self.pycolmap.estimate_sim3d_robust(centers, positions, options)
        return None if found is None else found["tgt_from_src"]

    def _fit(
        self,
        model: typing.Any,
        image_ids: list[int],
        positions: Doubles,
        covariances: Doubles,
    ) -> typing.Any:
        """The Sim3d of least cost of all positions. An adjustment takes many short
        steps to turn a whole map."""
        frames = [model.frame(model.image(i).frame_id) for i in image_ids]
        poses = [frame.rig_from_world for frame in frames]
        centers = numpy.array(
            [p.rotation.matrix().T @ (self.offset - p.translation) for p in poses]
        ) + self._places(model, image_ids)
        weights = 3.0 / numpy.trace(covariances, axis1=1, axis2=2)
        parts = weights
        for _ in range(1 if self.loss is None else _FIT_ITERATIONS):
            scale, rotation, translation = _fit_similarity(centers, positions, parts)
            moved = scale * centers @ rotation.T + translation
            errors = weights * ((moved - positions) ** 2).sum(axis=1)
            parts = weights / (1.0 + errors / self.loss_scale**2)
        return self.pycolmap.Sim3d(
            scale, self.pycolmap.Rotation3d(rotation), translation
        )


def _fit_similarity(
    source: Doubles, target: Doubles, weights: Doubles
) -> tuple[float, Doubles, Doubles]:
    """Scale, rotation and translation of least squares (Umeyama 1991)."""
    weights = weights / weights.sum()
    center, to = weights @ source, weights @ target
    source = source - center
    u, d, v = numpy.linalg.svd((weights[:, None] * (target - to)).T @ source)
    signs = numpy.array([1.0, 1.0, numpy.sign(numpy.linalg.det(u @ v))])
    rotation = u * signs @ v
    scale = float(d @ signs) / float(weights @ (source**2).sum(axis=1))
    return scale, rotation, to - scale * rotation @ center


class _Problem:
    """All images of a reconstruction with their frames, sensors and cameras. The
    origin of a frame is the antenna of its rig."""

    def __init__(
        self,
        reconstruction: typing.Any,
        options: typing.Any,
        config: typing.Any,
        offset: Doubles,
        refines_offset: bool,
    ):
        self.reconstruction = reconstruction
        self.options = options
        self.config = config
        self.arrays: Model = read_reconstruction(reconstruction)
        self.problem = ArrayProblem()
        self.sensors = self._sensors_of_images()
        self.uses_antenna = refines_offset or bool(offset.any())
        self.frames = numpy.array(self.arrays.frame_poses)
        self.frames[:, 4:] -= offset
        self.points = numpy.array(self.arrays.points)
        self.cameras = numpy.array(self.arrays.camera_params)
        self.params: list[tuple[Numbers, Doubles]] = []
        self.mounts = numpy.vstack(
            [[0.0, 0.0, 0.0, 1.0, *offset], self.arrays.sensor_poses]
        )
        """The antenna, then other sensors, from the frame, which is the antenna."""
        self.mounts[1:] = _add_places(self.mounts[1:], offset)
        self._add_blocks(refines_offset)
        self._add_observations()

    def _sensors_of_images(self) -> Numbers:
        """1 + the number of the sensor of each image; 0 for reference sensors."""
        arrays = self.arrays
        ids = (arrays.sensor_rig_ids.tolist(), arrays.sensor_camera_ids.tolist())
        keys = zip(*ids, strict=True)
        numbers = {key: 1 + k for k, key in enumerate(keys)}
        frame_ids = arrays.frame_ids.tolist()
        rigs = [self.reconstruction.frame(i).rig_id for i in frame_ids]
        cameras = arrays.camera_ids.tolist()
        return numpy.array(
            [
                0 if sensor < 0 else numbers[rigs[frame], cameras[camera]]
                for sensor, frame, camera in zip(
                    arrays.image_sensors.tolist(),
                    arrays.image_frames.tolist(),
                    arrays.image_cameras.tolist(),
                    strict=True,
                )
            ]
        )

    def _add_blocks(self, refines_offset: bool) -> None:
        options = self.options
        is_constant = _is_in(
            self.arrays.frame_ids, self.config.constant_rig_from_world_poses
        ) | (not options.refine_rig_from_world)
        turns = not options.constant_rig_from_world_rotation
        self.frame_blocks = self.problem.add_parameters(
            self.frames,
            constant=is_constant,
            manifold=_POSE if turns else _TRANSLATION,
        )
        self.point_blocks = self.problem.add_parameters(
            self.points,
            constant=numpy.full(len(self.points), not options.refine_points3D),
        )
        fixed = [sensor.id for sensor in self.config.constant_sensor_from_rig_poses]
        is_constant = _is_in(self.arrays.sensor_camera_ids, fixed) | (
            not options.refine_sensor_from_rig
        )
        if refines_offset and is_constant.any():
            raise ValueError(
                "refine_antenna_offset: expected rigs whose sensors are refined too, "
                "found constant sensors, which is not supported"
            )
        self.mount_blocks = self.problem.add_parameters(
            self.mounts,
            constant=numpy.array([not refines_offset, *is_constant]),
            manifold=[_TRANSLATION, *[_POSE] * len(is_constant)],
        )

    def _add_observations(self) -> None:
        arrays = self.arrays
        rows = numpy.flatnonzero(arrays.point_index >= 0)
        point = arrays.point_index[rows]
        lengths = numpy.bincount(point, minlength=1)
        is_used = lengths[point] >= self.options.min_track_length
        rows, point = rows[is_used], point[is_used]
        image = numpy.searchsorted(arrays.points2d_begin, rows, side="right") - 1
        is_mounted = (self.sensors > 0) | self.uses_antenna
        models = numpy.array(arrays.camera_models)
        ceres = self.options.ceres
        loss = _LOSSES[ceres.loss_function_type.name](ceres.loss_function_scale)
        # Literals for the type checker.
        names: list[typing.Any] = sorted(set(arrays.camera_models))
        for name in names:
            ids = numpy.flatnonzero(models == name)
            camera_blocks = self._add_cameras(ids)
            camera = numpy.searchsorted(ids, arrays.image_cameras[image])
            is_here = models[arrays.image_cameras[image]] == name
            for mounted in (False, True):
                here = numpy.flatnonzero(is_here & (is_mounted[image] == mounted))
                frame = arrays.image_frames[image[here]]
                blocks = [
                    (self.point_blocks, point[here]),
                    (self.frame_blocks, frame),
                    (camera_blocks, camera[here]),
                ]
                if mounted:
                    blocks.insert(1, (self.mount_blocks, self.sensors[image[here]]))
                if len(here) > 0:
                    self.problem.add_residuals(
                        "RigReprojectionError" if mounted else "ReprojectionError",
                        numpy.ascontiguousarray(arrays.points2d[rows[here]]),
                        [(k, index.astype(numpy.int32)) for k, index in blocks],
                        camera_model=name,
                        loss=loss,
                    )

    def _add_cameras(self, numbers: Numbers) -> int:
        """Cameras of one model."""
        cameras = [
            self.reconstruction.camera(int(self.arrays.camera_ids[k])) for k in numbers
        ]
        params = numpy.ascontiguousarray(
            self.cameras[numbers, : len(cameras[0].params)]
        )
        self.params.append((numbers, params))
        options = self.options
        fixed: list[int] = []
        for refines, indices in (
            (options.refine_focal_length, cameras[0].focal_length_idxs()),
            (options.refine_principal_point, cameras[0].principal_point_idxs()),
            (options.refine_extra_params, cameras[0].extra_params_idxs()),
        ):
            if not refines:
                fixed += indices
        is_constant = _is_in(
            self.arrays.camera_ids[numbers], self.config.constant_cam_intrinsics
        ) | (len(fixed) == params.shape[1])
        is_varied = 0 < len(fixed) < params.shape[1]
        return self.problem.add_parameters(
            params,
            constant=is_constant,
            manifold=SubsetManifold(params.shape[1], sorted(fixed))
            if is_varied
            else None,
        )

    def add_positions(
        self,
        frame_ids: list[int],
        positions: Doubles,
        covariances: Doubles,
        loss: typing.Any,
    ) -> None:
        """positions: of the origins of frames."""
        numbers = {i: k for k, i in enumerate(self.arrays.frame_ids.tolist())}
        frames = numpy.array([numbers[i] for i in frame_ids], numpy.int32)
        self.problem.add_residuals(
            "PositionPrior",
            positions,
            [(self.frame_blocks, frames)],
            covariances=covariances,
            loss=loss,
        )

    def add_antenna(self, offset: Doubles) -> None:
        """offset: where it is expected."""
        self.problem.add_residuals(
            "PosePrior",
            numpy.array([[0.0, 0.0, 0.0, 1.0, *offset]]),
            [(self.mount_blocks, numpy.zeros(1, numpy.int32))],
            covariances=_ANTENNA_SIGMA**2 * numpy.eye(6),
        )

    def solve(self, values: dict[str, typing.Any]) -> Doubles:
        """Writes the solution to the reconstruction. Returns the antenna's offset."""
        solver = SolverOptions(**SOLVER_DEFAULTS)
        take_solver_options(self.options, solver)
        ceres = self.options.ceres
        if len(self.frames) <= ceres.max_num_images_direct_sparse_cpu_solver:
            # Steps that move the whole map need few exact steps, or many of PCG.
            solver.linear_solver_type = "SPARSE_SCHUR"
        solve(self.problem, solver, **values)
        offset = self.mounts[0, 4:].copy()
        self.frames[:, 4:] += offset
        for numbers, params in self.params:
            self.cameras[numbers, : params.shape[1]] = params
        arrays = self.arrays
        result: typing.Any = types.SimpleNamespace(
            camera_ids=arrays.camera_ids,
            camera_params=self.cameras,
            frame_ids=arrays.frame_ids,
            frame_poses=self.frames,
            sensor_rig_ids=arrays.sensor_rig_ids,
            sensor_camera_ids=arrays.sensor_camera_ids,
            sensor_poses=_add_places(self.mounts[1:], -offset),
            point_ids=arrays.point_ids,
            points=self.points,
        )
        write_back(result, self.reconstruction)
        return offset


def _is_in(ids: typing.Any, chosen: typing.Any) -> Flags:
    return numpy.isin(ids, numpy.array(sorted(chosen), numpy.int64))


def _add_places(poses: Doubles, place: Doubles) -> Doubles:
    """Poses (n, 7) of frames whose origin is moved to -place."""
    result = poses.copy()
    turned = numpy.tile([0.0, 0.0, 0.0, 0.0], (len(poses), 1))
    turned[:, :3] = place
    rotations = poses[:, :4]
    turned = multiply(multiply(rotations, turned), invert(rotations))
    result[:, 4:] += turned[:, :3]
    return result
