# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Adjustment of a whole map with measured positions, as those of GPS."""

from __future__ import annotations

import typing

import numpy

from .adjustment import MeasuredPositions, bundle_adjustment
from .mirror import Mirror
from .rotation_averaging import Doubles

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
# Times that a fit with a robust loss is repeated.
_FIT_ITERATIONS = 10


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
        self.loss_scale: float | None = (
            options.prior_position_loss_scale
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
        mirror: typing.Any,
        options: typing.Any,
        config: typing.Any,
        values: dict[str, typing.Any],
    ) -> bool:
        """Moves a reconstruction to the positions, and adjusts all its images. False
        and nothing has changed if it has too few positions or they do not fit.

        mirror: of the reconstruction, or the reconstruction.
        options: a pycolmap.BundleAdjustmentOptions. config: a
        BundleAdjustmentConfig; its constant frames, sensors and cameras are.
        """
        model = mirror.reconstruction if isinstance(mirror, Mirror) else mirror
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
        if num_frames <= options.ceres.max_num_images_direct_sparse_cpu_solver:
            # Steps that move the whole map need few exact steps, or many of PCG.
            values = {"linear_solver_type": "SPARSE_SCHUR", **values}
        summary = bundle_adjustment(
            mirror,
            options,
            config,
            print_summary=False,
            positions=MeasuredPositions(
                image_ids,
                positions,
                covariances,
                self.loss_scale,
                self.start if self.has_antenna else None,
                _ANTENNA_SIGMA if self.refines else 0.0,
                self.offset,
            ),
            **values,
        )
        if summary.antenna_offset is not None:
            self.offset = summary.antenna_offset
        return True

    def _covariance(self, image_id: int) -> Doubles:
        prior = self._priors[image_id]
        if prior.has_position_cov():
            return numpy.array(prior.position_covariance)
        return _FALLBACK_SIGMA**2 * numpy.eye(3)

    def _places(self, model: typing.Any, image_ids: list[int]) -> Doubles:
        """Places of the cameras or their antennas."""
        images = [model.image(i) for i in image_ids]
        if not self.has_antenna:
            return numpy.array([image.projection_center() for image in images])
        poses = [model.frame(image.frame_id).rig_from_world for image in images]
        return numpy.array(
            [p.rotation.matrix().T @ (self.offset - p.translation) for p in poses]
        )

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
        places = self._places(model, image_ids)
        weights = 3.0 / numpy.trace(covariances, axis1=1, axis2=2)
        parts = weights
        for _ in range(1 if self.loss_scale is None else _FIT_ITERATIONS):
            scale, rotation, translation = _fit_similarity(places, positions, parts)
            moved = scale * places @ rotation.T + translation
            errors = weights * ((moved - positions) ** 2).sum(axis=1)
            if self.loss_scale is not None:
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
