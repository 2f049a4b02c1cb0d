# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Reads reconstructions of pycolmap into models, whole or in part."""

from __future__ import annotations

import os
import tempfile
import typing

import numpy
import numpy.typing

from .._ceres_ext import ColmapModel as Model
from .._ceres_ext import _ColmapMirror, _read_colmap

_Flags = numpy.typing.NDArray[numpy.bool_]

# Linux has files there in memory.
_MEMORY_FOLDER = "/dev/shm"
_FILES = ("rigs", "cameras", "frames", "images", "points3D")


class Mirror:
    """A reconstruction of pycolmap that is adjusted many times, in small parts.

    reconstruction: a pycolmap.Reconstruction.

        mirror = ceres_ext.colmap.Mirror(reconstruction)
        ceres_ext.colmap.bundle_adjustment(mirror, options, config)

    reads and writes only the images, cameras and points of config, where pycolmap has
    them in memory. No value is kept from call to call. Errors of points are not
    updated.
    keeps_places: keeps where images and points are in memory, which makes calls
    faster. Call forget() if the 2D points of an image were replaced, or a point was
    added with the number of one that was deleted.
    """

    def __init__(self, reconstruction: typing.Any, keeps_places: bool = False):
        self.reconstruction = reconstruction
        self._keeps_places = keeps_places
        self._places = _ColmapMirror(reconstruction)
        self._is_part = False

    def forget(self) -> None:
        """The next adjustment finds images and points again."""
        self._places.forget()

    def _read(self, config: typing.Any) -> tuple[Model, _Flags]:
        """The model of a BundleAdjustmentConfig: its images with all they see,
        and the other images that see its points with those alone. Flags of points
        that further images see."""
        if not self._keeps_places:
            self.forget()
        part = self._places.read(
            sorted(config.images),
            sorted(config.variable_points | config.constant_points),
        )
        self._is_part = part is not None
        if part is None:
            # A pycolmap with another layout in memory.
            model = read_reconstruction(self.reconstruction)
            return model, numpy.zeros(len(model.points), dtype=numpy.bool_)
        model, partly_seen = part
        return model, partly_seen.view(numpy.bool_)

    def _write(self, model: Model) -> None:
        if not self._is_part:
            write_cameras_and_poses(model, self.reconstruction)
            write_points(model, self.reconstruction)
            return
        if not self._keeps_places:
            self.forget()
        self._places.write(model)


def read_reconstruction(reconstruction: typing.Any) -> Model:
    """Through files in memory, which pycolmap writes at once: reading part by
    part takes about 10 times as long. A folder in memory is made and removed faster
    than one on a disk."""
    memory = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK) else None
    files: list[int] = []
    with tempfile.TemporaryDirectory(prefix="ceres_ext_", dir=memory) as folder:
        try:
            for file in _FILES:
                files.append(os.memfd_create(file))
                os.symlink(
                    f"/proc/self/fd/{files[-1]}", os.path.join(folder, file + ".bin")
                )
            reconstruction.write_binary(folder)
            return _read_colmap(folder)
        finally:
            for descriptor in files:
                os.close(descriptor)


def write_cameras_and_poses(model: Model, reconstruction: typing.Any) -> None:
    for number, camera_id in enumerate(model.camera_ids.tolist()):
        params = reconstruction.camera(camera_id).params
        params[:] = model.camera_params[number, : len(params)]
    for frame_id, pose in zip(
        model.frame_ids.tolist(), model.frame_poses, strict=True
    ):
        reconstruction.frame(frame_id).rig_from_world.params[:] = pose
    for rig_id, camera_id, pose in zip(
        model.sensor_rig_ids.tolist(),
        model.sensor_camera_ids.tolist(),
        model.sensor_poses,
        strict=True,
    ):
        if not numpy.isnan(pose[0]):
            rig = reconstruction.rig(rig_id)
            sensor = reconstruction.camera(camera_id).sensor_id
            sensor_from_rig = rig.sensor_from_rig(sensor)
            sensor_from_rig.params[:] = pose
            rig.set_sensor_from_rig(sensor, sensor_from_rig)


def write_points(model: Model, reconstruction: typing.Any) -> None:
    points = reconstruction.points3D
    for point_id, xyz in zip(
        model.point_ids.tolist(), numpy.ascontiguousarray(model.points), strict=True
    ):
        points[point_id].xyz = xyz
