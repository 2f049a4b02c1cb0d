# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Reads reconstructions of pycolmap into models, whole or in part."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import importlib
import os
import struct
import tempfile
import typing

import numpy
import numpy.typing

from .._ceres_ext import ColmapModel as Model
from .._ceres_ext import _read_colmap

_Flags = numpy.typing.NDArray[numpy.bool_]
_Doubles = numpy.typing.NDArray[numpy.float64]
_Numbers = numpy.typing.NDArray[numpy.int64]

# Linux has files there in memory.
_MEMORY_FOLDER = "/dev/shm"
_FILES = ("rigs", "cameras", "frames", "images", "points3D")

# Records of COLMAP's binary files. A point3D_id of -1 is none.
_POINT2D = numpy.dtype([("xy", "<f8", 2), ("point", "<i8")])
_POINT3D = numpy.dtype(
    [
        ("id", "<i8"),
        ("xyz", "<f8", 3),
        ("color", "u1", 3),
        ("error", "<f8"),
        ("track_length", "<u8"),
    ]
)
_TRACK_ELEMENT = numpy.dtype([("image", "<u4"), ("point2d", "<u4")])
# IMAGE_ID, the pose and CAMERA_ID; a name that ends in a zero follows.
_IMAGE_BYTES = 4 + 7 * 8 + 4


class Mirror:
    """A reconstruction of pycolmap that is adjusted many times in small parts.

    reconstruction: a pycolmap.Reconstruction.

        mirror = ceres_ext.colmap.Mirror(reconstruction)
        ceres_ext.colmap.bundle_adjustment(mirror, options, config)

    reads and writes only the images, cameras and points of config. Pixels of
    images are kept: create another Mirror if the 2D points of an image have
    changed. Errors of points are not updated.
    """

    def __init__(self, reconstruction: typing.Any):
        self.reconstruction = reconstruction
        self._pixels: dict[int, _Doubles] = {}
        self._start: _Doubles = numpy.empty((0, 3))

    def _read(self, config: typing.Any) -> tuple[Model, _Flags]:
        """The model of a BundleAdjustmentConfig: its images with all they see,
        and the other images that see its points with those alone. Flags of points
        that other images see too."""
        images = set(config.images)
        tracks = self._read_tracks(
            sorted(set(config.variable_points) | set(config.constant_points))
        )
        others = set(tracks["image"].tolist()) - images
        part = _part_of(self.reconstruction, images | others, images)
        with _files_in_memory(part) as (folder, files):
            headers, found = _split_images(_read_file(files["images"]))
            seen = [self._observations(i, found[i]) for i in sorted(images)]
            self._add_pixels(others - self._pixels.keys())
            # The config's images see these points already.
            outside = tracks[~numpy.isin(tracks["image"], sorted(images))]
            seen.append(self._observations_of(outside))
            rows = numpy.concatenate(seen)
            ids, number = numpy.unique(rows["point"], return_inverse=True)
            order = numpy.lexsort((rows["image"], number))
            points, lengths = self._points(ids)
            rows, index = rows[order], number[order]
            _write_file(files["images"], _join_images(headers, rows))
            _write_file(files["points3D"], _join_points(points, rows, index))
            model = _read_colmap(folder)
        self._start = points["xyz"].copy()
        return model, lengths > numpy.bincount(index, minlength=len(ids))

    def _write(self, model: Model) -> None:
        write_cameras_and_poses(model, self.reconstruction)
        points = self.reconstruction.points3D
        values = numpy.ascontiguousarray(model.points)
        ids = model.point_ids
        for i in numpy.flatnonzero((values != self._start).any(axis=1)):
            points[int(ids[i])].xyz = values[i]

    def _read_tracks(self, point_ids: list[int]) -> numpy.typing.NDArray[typing.Any]:
        """All observations of points."""
        part = _pycolmap().Reconstruction()
        # Not add_point3D_with_id, which wants the images of the track.
        points, copies = self.reconstruction.points3D, part.points3D
        for point_id in point_ids:
            copies[point_id] = points[point_id]
        rows = []
        with _files_in_memory(part) as (_, files):
            data = _read_file(files["points3D"])
        begin = 8
        while begin < len(data):
            point_id, length = struct.unpack_from("<q35xQ", data, begin)
            begin += _POINT3D.itemsize
            track = numpy.frombuffer(data, _TRACK_ELEMENT, length, begin)
            begin += track.nbytes
            rows.append((point_id, track))
        result = _rows(sum(len(track) for _, track in rows))
        if rows:
            elements = numpy.concatenate([track for _, track in rows])
            result["image"] = elements["image"]
            result["point2d"] = elements["point2d"]
            result["point"] = numpy.repeat(
                [point_id for point_id, _ in rows], [len(track) for _, track in rows]
            )
        return result

    def _observations(
        self, image_id: int, points2d: numpy.typing.NDArray[typing.Any]
    ) -> numpy.typing.NDArray[typing.Any]:
        """All of an image."""
        if image_id not in self._pixels:
            self._pixels[image_id] = points2d["xy"].copy()
        numbers = numpy.flatnonzero(points2d["point"] >= 0)
        result = _rows(len(numbers))
        result["image"] = image_id
        result["point2d"] = numbers
        result["point"] = points2d["point"][numbers]
        result["xy"] = points2d["xy"][numbers]
        return result

    def _observations_of(
        self, tracks: numpy.typing.NDArray[typing.Any]
    ) -> numpy.typing.NDArray[typing.Any]:
        for image_id in numpy.unique(tracks["image"]):
            here = tracks["image"] == image_id
            pixels = self._pixels[int(image_id)]
            tracks["xy"][here] = pixels[tracks["point2d"][here]]
        return tracks

    def _add_pixels(self, image_ids: set[int]) -> None:
        if image_ids:
            part = _part_of(self.reconstruction, image_ids, image_ids)
            with _files_in_memory(part) as (_, files):
                _, found = _split_images(_read_file(files["images"]))
            for image_id in image_ids:
                self._pixels[image_id] = found[image_id]["xy"].copy()

    def _points(
        self, point_ids: _Numbers
    ) -> tuple[numpy.typing.NDArray[typing.Any], _Numbers]:
        """Points, and the lengths of their tracks in the reconstruction."""
        points = self.reconstruction.points3D
        found = [points[point_id] for point_id in point_ids.tolist()]
        result = numpy.zeros(len(found), _POINT3D)
        result["id"] = point_ids
        if found:
            result["xyz"] = [point.xyz for point in found]
        lengths = [point.track.length() for point in found]
        return result, numpy.array(lengths, dtype=numpy.int64)


def read_reconstruction(reconstruction: typing.Any) -> Model:
    """Through files in memory, which pycolmap writes at once: reading part by
    part takes about 10 times as long."""
    with _files_in_memory(reconstruction) as (folder, _):
        return _read_colmap(folder)


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


def _pycolmap() -> typing.Any:
    # By name, so that type checkers do not look for it.
    return importlib.import_module("pycolmap")


def _rows(size: int) -> numpy.typing.NDArray[typing.Any]:
    return numpy.zeros(
        size,
        [("image", "<u4"), ("point2d", "<u4"), ("point", "<i8"), ("xy", "<f8", 2)],
    )


def _part_of(
    reconstruction: typing.Any, image_ids: set[int], with_points: set[int]
) -> typing.Any:
    """A reconstruction of the frames of images. Images that are not in with_points
    have no 2D points."""
    pycolmap = _pycolmap()
    part = pycolmap.Reconstruction()
    frames = reconstruction.frames
    images = reconstruction.images
    frame_ids = {images[image_id].frame_id for image_id in image_ids}
    rig_ids = {frames[frame_id].rig_id for frame_id in frame_ids}
    in_frames = {
        data.id: frame_id
        for frame_id in sorted(frame_ids)
        for data in frames[frame_id].data_ids
        if data.sensor_id.type == pycolmap.SensorType.CAMERA
    }
    cameras = {images[image_id].camera_id for image_id in in_frames}
    for rig_id in sorted(rig_ids):
        rig = reconstruction.rig(rig_id)
        cameras |= {s.id for s in [rig.ref_sensor_id, *rig.non_ref_sensors]}
    for camera_id in sorted(cameras):
        part.add_camera(reconstruction.camera(camera_id))
    for rig_id in sorted(rig_ids):
        part.add_rig(reconstruction.rig(rig_id))
    for frame_id in sorted(frame_ids):
        frame = copy.deepcopy(frames[frame_id])
        frame.reset_rig_ptr()
        part.add_frame(frame)
    for image_id in sorted(in_frames):
        image = images[image_id]
        if image_id in with_points:
            image = copy.deepcopy(image)
            image.reset_camera_ptr()
            image.reset_frame_ptr()
        else:
            image = pycolmap.Image(
                name=image.name, camera_id=image.camera_id, image_id=image_id
            )
            image.frame_id = in_frames[image_id]
        part.add_image(image)
    for frame_id in sorted(frame_ids):
        part.register_frame(frame_id)
    return part


@contextlib.contextmanager
def _files_in_memory(
    reconstruction: typing.Any,
) -> collections.abc.Iterator[tuple[str, dict[str, int]]]:
    """A folder with the binary files of a reconstruction, and their descriptors.
    A folder in memory is made and removed faster than one on a disk."""
    memory = _MEMORY_FOLDER if os.access(_MEMORY_FOLDER, os.W_OK | os.X_OK) else None
    files: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="ceres_ext_", dir=memory) as folder:
        try:
            for file in _FILES:
                files[file] = os.memfd_create(file)
                os.symlink(
                    f"/proc/self/fd/{files[file]}", os.path.join(folder, file + ".bin")
                )
            reconstruction.write_binary(folder)
            yield folder, files
        finally:
            for descriptor in files.values():
                os.close(descriptor)


def _read_file(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _write_file(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)


def _split_images(
    data: bytes,
) -> tuple[dict[int, bytes], dict[int, numpy.typing.NDArray[typing.Any]]]:
    """The fields of each image of images.bin up to its name, and its 2D points."""
    headers: dict[int, bytes] = {}
    points: dict[int, numpy.typing.NDArray[typing.Any]] = {}
    begin = 8
    while begin < len(data):
        end = data.index(b"\0", begin + _IMAGE_BYTES) + 1
        (image_id,) = struct.unpack_from("<I", data, begin)
        (size,) = struct.unpack_from("<Q", data, end)
        headers[image_id] = data[begin:end]
        points[image_id] = numpy.frombuffer(data, _POINT2D, size, end + 8)
        begin = end + 8 + points[image_id].nbytes
    return headers, points


def _join_images(
    headers: dict[int, bytes], rows: numpy.typing.NDArray[typing.Any]
) -> bytes:
    """images.bin of the observations alone. Sets rows["point2d"] to their numbers
    there."""
    parts = [struct.pack("<Q", len(headers))]
    for image_id, header in headers.items():
        here = numpy.flatnonzero(rows["image"] == image_id)
        rows["point2d"][here] = numpy.arange(len(here))
        points2d = numpy.empty(len(here), _POINT2D)
        points2d["xy"] = rows["xy"][here]
        points2d["point"] = rows["point"][here]
        parts += [header, struct.pack("<Q", len(here)), points2d.tobytes()]
    return b"".join(parts)


def _join_points(
    points: numpy.typing.NDArray[typing.Any],
    rows: numpy.typing.NDArray[typing.Any],
    index: _Numbers,
) -> bytes:
    """points3D.bin. rows: the observations, sorted by their points, of numbers
    index."""
    lengths = numpy.bincount(index, minlength=len(points))
    points["track_length"] = lengths
    elements = numpy.empty(len(rows), _TRACK_ELEMENT)
    elements["image"] = rows["image"]
    elements["point2d"] = rows["point2d"]
    # The bytes of each point, then those of its track, for all points at once.
    width = _TRACK_ELEMENT.itemsize
    ends = numpy.cumsum(_POINT3D.itemsize + width * lengths)
    begins = ends - _POINT3D.itemsize - width * lengths
    data = numpy.empty(ends[-1] if len(ends) else 0, numpy.uint8)
    at_points = begins[:, None] + numpy.arange(_POINT3D.itemsize)
    data[at_points] = points.view(numpy.uint8).reshape(-1, _POINT3D.itemsize)
    rank = numpy.arange(len(rows)) - (numpy.cumsum(lengths) - lengths)[index]
    at_elements = begins[index] + _POINT3D.itemsize + width * rank
    data[at_elements[:, None] + numpy.arange(width)] = elements.view(
        numpy.uint8
    ).reshape(-1, width)
    return struct.pack("<Q", len(points)) + data.tobytes()
