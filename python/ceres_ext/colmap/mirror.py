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
_Records = numpy.typing.NDArray[typing.Any]

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
# An observation, with the number of its 2D point in its image.
_ROW = numpy.dtype(
    [("image", "<u4"), ("point2d", "<u4"), ("point", "<i8"), ("xy", "<f8", 2)]
)
# A reconstruction with so many 2D points is read whole in less time than a part of
# six images takes (measured in docs/measurements/mapping.md).
_MAX_POINTS2D_OF_WHOLE = 50000
# IMAGE_ID, the pose and CAMERA_ID; a name that ends in a zero follows.
_IMAGE_BYTES = 4 + 7 * 8 + 4


class Mirror:
    """A reconstruction of pycolmap that is adjusted many times in small parts.

    reconstruction: a pycolmap.Reconstruction.

        mirror = ceres_ext.colmap.Mirror(reconstruction)
        ceres_ext.colmap.bundle_adjustment(mirror, options, config)

    reads and writes only the images, cameras and points of config; a small
    reconstruction is read whole. Pixels of images are kept: create another Mirror
    if the 2D points of an image have changed. Errors of points are not updated.
    """

    def __init__(self, reconstruction: typing.Any):
        self.reconstruction = reconstruction
        self._pixels: dict[int, _Doubles] = {}
        self._start: _Doubles = numpy.empty((0, 3))

    def _read(self, config: typing.Any) -> tuple[Model, _Flags]:
        """The model of a BundleAdjustmentConfig: its images with all they see,
        and the other images that see its points with those alone. Flags of points
        that other images see too."""
        if self._num_points2d() <= _MAX_POINTS2D_OF_WHOLE:
            model = read_reconstruction(self.reconstruction)
            self._start = model.points.copy()
            return model, numpy.zeros(len(model.points), dtype=numpy.bool_)
        images = set(config.images)
        added, tracks = self._read_points(
            sorted(set(config.variable_points) | set(config.constant_points))
        )
        # The config's images see these points already.
        tracks = tracks[~numpy.isin(tracks["image"], sorted(images))]
        others = set(tracks["image"].tolist())
        part = _part_of(self.reconstruction, images | others, images)
        with _files_in_memory(part) as (folder, files):
            headers, found = _split_images(_read_file(files["images"]))
            seen = [self._observations(i, found[i]) for i in sorted(images)]
            rows = numpy.concatenate([*seen, self._with_pixels(tracks)])
            rows = rows[numpy.lexsort((rows["image"], rows["point"]))]
            begins = numpy.flatnonzero(numpy.diff(rows["point"], prepend=-1))
            counts = numpy.diff(begins, append=len(rows))
            points = self._points(rows["point"][begins], added)
            partly_seen: _Flags = points["track_length"] > counts
            points["track_length"] = counts
            _write_file(files["images"], _join_images(headers, rows))
            _write_file(files["points3D"], _join_points(points, rows))
            model = _read_colmap(folder)
        self._start = points["xyz"].copy()
        return model, partly_seen

    def _write(self, model: Model) -> None:
        write_cameras_and_poses(model, self.reconstruction)
        points = self.reconstruction.points3D
        values = numpy.ascontiguousarray(model.points)
        ids = model.point_ids
        for i in numpy.flatnonzero((values != self._start).any(axis=1)):
            points[int(ids[i])].xyz = values[i]

    def _num_points2d(self) -> int:
        images = self.reconstruction.images
        ids = self.reconstruction.reg_image_ids()
        return sum(images[image_id].num_points2D() for image_id in ids)

    def _read_points(self, point_ids: list[int]) -> tuple[_Records, _Records]:
        """Points, and their observations."""
        part = _pycolmap().Reconstruction()
        # Not add_point3D_with_id, which wants the images of the track.
        points, copies = self.reconstruction.points3D, part.points3D
        for point_id in point_ids:
            copies[point_id] = points[point_id]
        with _files_in_memory(part) as (_, files):
            data = _read_file(files["points3D"])
        added, elements = _split_points(data)
        rows = numpy.zeros(len(elements), _ROW)
        rows["image"] = elements["image"]
        rows["point2d"] = elements["point2d"]
        rows["point"] = numpy.repeat(
            added["id"], added["track_length"].astype(numpy.int64)
        )
        return added, rows

    def _observations(self, image_id: int, points2d: _Records) -> _Records:
        """All of an image."""
        if image_id not in self._pixels:
            self._pixels[image_id] = points2d["xy"].copy()
        numbers = numpy.flatnonzero(points2d["point"] >= 0)
        rows = numpy.empty(len(numbers), _ROW)
        rows["image"] = image_id
        rows["point2d"] = numbers
        rows["point"] = points2d["point"][numbers]
        rows["xy"] = points2d["xy"][numbers]
        return rows

    def _with_pixels(self, rows: _Records) -> _Records:
        """The rows with their kept pixels."""
        image_ids, number = numpy.unique(rows["image"], return_inverse=True)
        self._keep_pixels(set(image_ids.tolist()) - self._pixels.keys())
        pixels = [self._pixels[image_id] for image_id in image_ids.tolist()]
        if pixels:
            begins = numpy.cumsum([0, *map(len, pixels)])[number]
            rows["xy"] = numpy.concatenate(pixels)[begins + rows["point2d"]]
        return rows

    def _keep_pixels(self, image_ids: set[int]) -> None:
        if image_ids:
            part = _part_of(self.reconstruction, image_ids, image_ids)
            with _files_in_memory(part) as (_, files):
                _, found = _split_images(_read_file(files["images"]))
            for image_id in image_ids:
                self._pixels[image_id] = found[image_id]["xy"].copy()

    def _points(self, point_ids: _Numbers, added: _Records) -> _Records:
        """Points, of which some were read already."""
        records = numpy.zeros(len(point_ids), _POINT3D)
        records["id"] = point_ids
        is_read = numpy.isin(point_ids, added["id"])
        records[is_read] = added[numpy.argsort(added["id"])]
        points = self.reconstruction.points3D
        found = [points[point_id] for point_id in point_ids[~is_read].tolist()]
        if found:
            records["xyz"][~is_read] = [point.xyz for point in found]
            records["track_length"][~is_read] = [
                point.track.length() for point in found
            ]
        return records


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
) -> tuple[dict[int, bytes], dict[int, _Records]]:
    """The fields of each image of images.bin up to its name, and its 2D points."""
    headers: dict[int, bytes] = {}
    points: dict[int, _Records] = {}
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
    headers: dict[int, bytes], rows: _Records
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


def _split_points(data: bytes) -> tuple[_Records, _Records]:
    """The points of points3D.bin, and their observations."""
    read_length = struct.Struct("<Q").unpack_from
    begins = []
    begin = 8
    while begin < len(data):
        begins.append(begin)
        begin += _POINT3D.itemsize
        begin += _TRACK_ELEMENT.itemsize * read_length(data, begin - 8)[0]
    all_bytes = numpy.frombuffer(data, numpy.uint8)
    is_point = _bytes_of_points(numpy.array(begins, numpy.int64), len(data))
    is_element = ~is_point
    is_element[:8] = False  # The number of points.
    elements = all_bytes[is_element].view(_TRACK_ELEMENT)
    return all_bytes[is_point].view(_POINT3D), elements


def _bytes_of_points(begins: _Numbers, size: int) -> _Flags:
    is_point = numpy.zeros(size, bool)
    is_point[begins[:, None] + numpy.arange(_POINT3D.itemsize)] = True
    return is_point


def _join_points(points: _Records, rows: _Records) -> bytes:
    """points3D.bin. rows: their observations in the order of the points."""
    lengths = points["track_length"].astype(numpy.int64)
    elements = numpy.empty(len(rows), _TRACK_ELEMENT)
    elements["image"] = rows["image"]
    elements["point2d"] = rows["point2d"]
    # The bytes of each point, then those of its track, for all points at once.
    sizes = _POINT3D.itemsize + _TRACK_ELEMENT.itemsize * lengths
    is_point = _bytes_of_points(numpy.cumsum(sizes) - sizes, sizes.sum())
    data = numpy.empty(len(is_point), numpy.uint8)
    data[is_point] = points.view(numpy.uint8)
    data[~is_point] = elements.view(numpy.uint8)
    return struct.pack("<Q", len(points)) + data.tobytes()
