# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Tracks of a map, and positions of its images and points from directions."""

from __future__ import annotations

import itertools
import typing

import numpy

from .._ceres_ext import ArrayProblem, HuberLoss, SolverOptions, solve
from .rotation_averaging import Doubles, Flags, Numbers, Pairs, connected

if typing.TYPE_CHECKING:
    from .._ceres_ext import OptionValues

# COLMAP's constants: half the size of the cube of random positions, the least scale
# of a direction, and the weight of cameras of unknown focal length.
_HALF_SIZE = 100.0
_MIN_SCALE = 1e-5
_UNCALIBRATED_WEIGHT = 0.5
# Steps are cheap, and maps of 1,000 images need more than COLMAP's 100.
_SOLVER: OptionValues = {"max_num_iterations": 200, "function_tolerance": 1e-7}


_Kind = typing.Literal["DirectionError", "RigDirectionError", "SensorDirectionError"]
_KINDS: tuple[_Kind, ...] = (
    "DirectionError",
    "RigDirectionError",
    "SensorDirectionError",
)


class Tracks(typing.NamedTuple):
    """Observations, sorted by track, image and number of the 2D point."""

    track: Numbers
    """(n,), 0, 1, ..."""
    image: Numbers
    """(n,), ids."""
    point2d: Numbers
    """(n,), its number in its image."""

    def select(self, flags: Flags) -> Tracks:
        """flags: of tracks."""
        rows = flags[self.track]
        number = numpy.cumsum(flags) - 1
        return Tracks(number[self.track[rows]], self.image[rows], self.point2d[rows])


def find_tracks(cache: typing.Any, pairs: Pairs, options: typing.Any) -> Tracks:
    """The matches of pairs, joined. options: a pycolmap.GlobalMapperOptions."""
    ids = numpy.unique([pairs.first, pairs.second])
    sizes = [cache.image(i).num_points2D() for i in ids.tolist()]
    begins = numpy.cumsum([0, *sizes])
    ends: list[list[Numbers]] = [[], []]
    graph = cache.correspondence_graph
    for i, j in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True):
        matches = graph.extract_matches_between_images(i, j).astype(numpy.int64)
        for side, image_id in enumerate((i, j)):
            begin = begins[numpy.searchsorted(ids, image_id)]
            ends[side].append(begin + matches[:, side])
    first, second = (numpy.concatenate([*side, begins[:0]]) for side in ends)
    nodes, number = numpy.unique([first, second], return_inverse=True)
    first, second = number.reshape(2, -1)
    roots, track = numpy.unique(
        connected(first, second, len(nodes)), return_inverse=True
    )
    # The nodes of a track are in order already.
    order = numpy.argsort(track, kind="stable")
    image = numpy.searchsorted(begins, nodes, side="right") - 1
    tracks = Tracks(
        track.reshape(-1)[order],
        ids[image][order],
        (nodes - begins[image])[order],
    )
    kept = _is_consistent(cache, tracks, len(roots), options)
    is_new = numpy.ones(len(order), numpy.bool_)
    is_new[1:] = (numpy.diff(tracks.track) != 0) | (numpy.diff(tracks.image) != 0)
    num_images = numpy.bincount(tracks.track[is_new], minlength=len(roots))
    kept &= num_images >= options.track_min_num_views_per_track
    kept &= num_images <= options.track_max_num_views_per_track
    return _longest(tracks.select(kept), len(ids), options)


def _is_consistent(
    cache: typing.Any, tracks: Tracks, size: int, options: typing.Any
) -> Flags:
    """Flags of tracks whose 2D points in the same image are close."""
    result = numpy.ones(size, numpy.bool_)
    limit = options.track_intra_image_consistency_threshold
    for distance in itertools.count(1):
        same = numpy.flatnonzero(
            (tracks.track[distance:] == tracks.track[:-distance])
            & (tracks.image[distance:] == tracks.image[:-distance])
        )
        if len(same) == 0:
            return result
        for k in same.tolist():
            points = cache.image(int(tracks.image[k])).points2D
            a, b = (points[int(tracks.point2d[m])].xy for m in (k, k + distance))
            if ((a - b) ** 2).sum() > limit**2:
                result[tracks.track[k]] = False
    raise AssertionError


def _longest(tracks: Tracks, num_images: int, options: typing.Any) -> Tracks:
    """The longest tracks, until images have as many as the options require."""
    lengths = numpy.bincount(tracks.track)
    required = options.track_required_tracks_per_view
    if len(lengths) <= min(required, options.keep_max_num_tracks):
        return tracks
    kept = numpy.zeros(len(lengths), numpy.bool_)
    begins = numpy.cumsum([0, *lengths])
    counts: dict[int, int] = {}
    num_kept = 0
    for track in numpy.argsort(-lengths, kind="stable").tolist():
        if num_kept == options.keep_max_num_tracks:
            break
        images = tracks.image[begins[track] : begins[track + 1]].tolist()
        if any(counts.get(image, 0) <= required for image in images):
            kept[track] = True
            num_kept += 1
            for image in images:
                counts[image] = counts.get(image, 0) + 1
            if len(counts) == num_images and min(counts.values()) > required:
                break
    return tracks.select(kept)


def position(
    pycolmap: typing.Any,
    model: typing.Any,
    tracks: Tracks,
    options: typing.Any,
    values: dict[str, typing.Any],
) -> Doubles | None:
    """Moves the registered frames of a model, whose rotations stay, and sensors of
    rigs without a place, and adds the tracks as points.

    options: a pycolmap.GlobalPositionerOptions. values: as for ceres_ext.solve.
    Returns the angle of each observation to its point, (n,), radians; NaN of
    observations that are not added, which are those without a direction. None if
    there is nothing to solve or the solve failed.
    """
    views = _Views(model, tracks)
    is_used = views.is_used
    lengths = numpy.bincount(tracks.track[is_used], minlength=1)
    is_used &= lengths[tracks.track] >= options.min_num_view_per_track
    rows = numpy.flatnonzero(is_used)
    if len(rows) == 0:
        return None
    track_ids, track = numpy.unique(tracks.track[rows], return_inverse=True)
    track = track.reshape(-1)
    random = numpy.random.default_rng(options.random_seed)
    centers = _HALF_SIZE * random.uniform(-1.0, 1.0, (len(views.frame_ids), 3))
    points = _HALF_SIZE * random.uniform(-1.0, 1.0, (len(track_ids), 3))
    places = random.uniform(-1.0, 1.0, (len(views.cameras), 3))
    directions = views.directions(rows)
    _solve(views, rows, directions, track, (centers, points, places), options, values)
    if not numpy.isfinite(centers).all() or not numpy.isfinite(points).all():
        return None
    views.write(pycolmap, centers, places)
    found = numpy.full(len(tracks.track), numpy.nan)
    seen = points[track] - views.projection_centers()[views.image[rows]]
    found[rows] = numpy.arctan2(
        numpy.linalg.norm(numpy.cross(directions, seen), axis=1),
        (directions * seen).sum(axis=1),
    )
    begins = numpy.searchsorted(track, numpy.arange(len(points) + 1))
    image_ids = tracks.image[rows].tolist()
    numbers = tracks.point2d[rows].tolist()
    for k, xyz in enumerate(points):
        elements = pycolmap.Track()
        for row in range(begins[k], begins[k + 1]):
            elements.add_element(image_ids[row], numbers[row])
        model.add_point3D(xyz, elements)
    return found


def knows_focal_length(camera: typing.Any) -> bool:
    """Panoramas have none that could be a guess."""
    return bool(
        camera.has_prior_focal_length or camera.model_name == "EQUIRECTANGULAR"
    )


class _Views:
    """The images of tracks, and the direction of each observation."""

    def __init__(self, model: typing.Any, tracks: Tracks):
        image_ids, image = numpy.unique(tracks.image, return_inverse=True)
        self.model = model
        self.images = [model.image(i) for i in image_ids.tolist()]
        self.image = image.reshape(-1)
        """(n,), number of the image of each observation."""
        self.frame_ids, frame = numpy.unique(
            [one.frame_id for one in self.images], return_inverse=True
        )
        self.frame = frame.reshape(-1)
        """Number of the frame of each image."""
        has_pose = numpy.array([one.has_pose for one in self.images], numpy.bool_)
        cameras = [model.camera(one.camera_id) for one in self.images]
        self.has_focal_length = numpy.array(
            [knows_focal_length(camera) for camera in cameras]
        )
        self.rotations = numpy.tile(numpy.eye(3), (len(self.images), 1, 1))
        """Rotations of cam_from_world, (images, 3, 3)."""
        self.translations = numpy.zeros((len(self.images), 3))
        """Translations of sensor_from_rig, (images, 3); NaN if it is unknown."""
        rays = numpy.full((len(tracks.image), 3), numpy.nan)
        for k, one in enumerate(self.images):
            if has_pose[k]:
                here = self.image == k
                seen = cameras[k].cam_ray_from_img(one.points2D)
                rays[here] = seen[tracks.point2d[here]]
                self.rotations[k] = one.cam_from_world().rotation.matrix()
                if not one.is_ref_in_frame():
                    rig = model.rig(model.frame(one.frame_id).rig_id)
                    pose = rig.sensor_from_rig(cameras[k].sensor_id)
                    self.translations[k] = pose.translation
        self.rays = rays
        """(n, 3), unit vectors with the axes of the camera."""
        self.is_used: Flags = numpy.isfinite(rays).all(axis=1)
        is_unknown = numpy.isnan(self.translations).any(axis=1)
        camera_ids = numpy.array([one.camera_id for one in self.images])
        self.cameras = numpy.unique(camera_ids[is_unknown])
        """Ids of cameras with an unknown place in their rig."""
        self.place = numpy.searchsorted(self.cameras, camera_ids)
        is_in_rig = [not one.is_ref_in_frame() for one in self.images]
        # An index of _KINDS.
        self.kind = numpy.where(is_unknown, 2, numpy.array(is_in_rig, numpy.int64))

    def directions(self, rows: Numbers) -> Doubles:
        """With the axes of the world."""
        rotations = self.rotations[self.image[rows]]
        return _turn_back(rotations, self.rays[rows])

    def places_in_rig(self, images: Numbers) -> Doubles:
        """(n, 3), of cameras from the center of the rig, with the axes of the
        world."""
        rotations = self.rotations[images]
        return -_turn_back(rotations, self.translations[images])

    def world_from_rig(self, images: Numbers) -> Doubles:
        """(n, 9), row-major."""
        poses = {
            k: self.model.frame(int(self.frame_ids[self.frame[k]])).rig_from_world
            for k in numpy.unique(images).tolist()
        }
        matrices = {k: pose.rotation.matrix().T for k, pose in poses.items()}
        return numpy.array([matrices[k].reshape(9) for k in images.tolist()])

    def projection_centers(self) -> Doubles:
        return numpy.array(
            [
                one.projection_center() if one.has_pose else numpy.zeros(3)
                for one in self.images
            ]
        )

    def write(self, pycolmap: typing.Any, centers: Doubles, places: Doubles) -> None:
        for k, frame_id in enumerate(self.frame_ids.tolist()):
            frame = self.model.frame(frame_id)
            if frame.has_pose:
                rotation = frame.rig_from_world.rotation
                frame.rig_from_world = pycolmap.Rigid3d(
                    rotation, -rotation.matrix() @ centers[k]
                )
        for k in numpy.flatnonzero(self.kind == 2).tolist():
            rig = self.model.rig(self.model.frame(self.images[k].frame_id).rig_id)
            sensor = self.model.camera(self.images[k].camera_id).sensor_id
            rotation = rig.sensor_from_rig(sensor).rotation
            place = places[self.place[k]]
            rig.set_sensor_from_rig(
                sensor, pycolmap.Rigid3d(rotation, -rotation.matrix() @ place)
            )


def _turn_back(rotations: Doubles, vectors: Doubles) -> Doubles:
    """(n, 3), rotations^-1 vectors."""
    return numpy.asarray(numpy.einsum("nij,ni->nj", rotations, vectors))


def _solve(
    views: _Views,
    rows: Numbers,
    directions: Doubles,
    track: Numbers,
    blocks: tuple[Doubles, Doubles, Doubles],
    options: typing.Any,
    values: dict[str, typing.Any],
) -> None:
    """blocks: centers of frames, points, places of sensors in rigs."""
    problem = ArrayProblem()
    centers, points, places = map(problem.add_parameters, blocks)
    # The first direction sets the scale, which is that of the rigs in the end.
    is_first = numpy.arange(len(rows)) == 0
    scales = problem.add_parameters(
        numpy.ones((len(rows), 1)), constant=is_first, lower=numpy.array([_MIN_SCALE])
    )
    scale_of_rigs = numpy.ones((1, 1))
    rigs = problem.add_parameters(scale_of_rigs, lower=numpy.array([_MIN_SCALE]))
    image = views.image[rows]
    weights = numpy.where(views.has_focal_length[image], 1.0, _UNCALIBRATED_WEIGHT)
    for kind, name in enumerate(_KINDS):
        here = numpy.flatnonzero(views.kind[image] == kind)
        if len(here) == 0:
            continue
        images = image[here]
        observations = [directions[here]]
        used = [
            (centers, views.frame[images].astype(numpy.int32)),
            (points, track[here].astype(numpy.int32)),
            (scales, here.astype(numpy.int32)),
        ]
        if name == "RigDirectionError":
            observations.append(views.places_in_rig(images))
            used.append((rigs, numpy.zeros(len(here), numpy.int32)))
        if name == "SensorDirectionError":
            observations.append(views.world_from_rig(images))
            used.append((places, views.place[images].astype(numpy.int32)))
        problem.add_residuals(
            name,
            numpy.hstack(observations),
            used,
            loss=HuberLoss(options.loss_function_scale),
            weights=weights[here],
        )
    solve(problem, SolverOptions(**_SOLVER), **values)
    for block in blocks:
        block /= scale_of_rigs
