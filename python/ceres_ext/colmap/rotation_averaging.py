# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Rotations of images from rotations between them.

Quaternions are (n, 4), x, y, z, w, as COLMAP's.
"""

from __future__ import annotations

import concurrent.futures
import heapq
import os
import typing

import numpy
import numpy.typing

from .._ceres_ext import ArrayProblem, EigenQuaternionManifold, solve

if typing.TYPE_CHECKING:
    from .._ceres_ext import OptionValues

Doubles = numpy.typing.NDArray[numpy.float64]
Numbers = numpy.typing.NDArray[numpy.int64]
Flags = numpy.typing.NDArray[numpy.bool_]

# The largest weight that an angle near 0 gets in L1 and L0.5 norms.
_MIN_ANGLE = 1e-3  # radians
# A pair that agrees with two others within 10 degrees is hardly wrong. So many
# triangles of each pair are tried.
_MAX_TRIANGLE_ERROR = 0.17  # radians
_MAX_TRIANGLES = 16
# Options of a solve between two computations of weights.
_SOLVER: OptionValues = {"max_num_iterations": 10, "function_tolerance": 1e-3}


class Pairs(typing.NamedTuple):
    """Pairs of images that see the same points, in the order of their ids."""

    first: Numbers
    """(n,), ids of images."""
    second: Numbers
    rotations: Doubles
    """(n, 4), second_from_first."""
    num_matches: Numbers

    def select(self, flags: Flags) -> Pairs:
        return Pairs(
            self.first[flags],
            self.second[flags],
            self.rotations[flags],
            self.num_matches[flags],
        )


def read_pairs(
    pycolmap: typing.Any,
    database: typing.Any,
    cache: typing.Any,
    decomposes: bool,
    num_threads: int,
) -> Pairs:
    """The pairs of a DatabaseCache. decomposes: computes relative poses that the
    database does not have. Pairs without one are left out."""
    graph = cache.correspondence_graph
    counts = graph.num_matches_between_all_images()
    ids = sorted(map(pycolmap.pair_id_to_image_pair, graph.image_pairs()))
    kinds = pycolmap.TwoViewGeometryConfiguration
    others = (kinds.UNDEFINED, kinds.DEGENERATE, kinds.WATERMARK, kinds.MULTIPLE)
    pixels: dict[int, Doubles] = {}

    def read(image_id: int) -> None:
        keypoints = database.read_keypoints(image_id)
        pixels[image_id] = keypoints[:, :2].astype(numpy.float64)

    def rotation(pair: tuple[int, int]) -> Doubles | None:
        geometry = graph.extract_two_view_geometry(*pair, decomposes)
        if geometry.cam2_from_cam1 is None:
            if not decomposes or geometry.config in others:
                return None
            cameras = [cache.camera(cache.image(i).camera_id) for i in pair]
            first = geometry.camera1 or cameras[0]
            second = geometry.camera2 or cameras[1]
            points = [pixels[i] for i in pair]
            if not _complete(
                pycolmap, geometry, (first, second), points
            ) or not pycolmap.estimate_two_view_geometry_pose(
                first, points[0], second, points[1], geometry
            ):
                return None
        return numpy.array(geometry.cam2_from_cam1.rotation.quat)

    if decomposes:
        for image_id in {image_id for pair in ids for image_id in pair}:
            read(image_id)
    workers = num_threads if num_threads > 0 else len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(workers) as executor:
        rotations = list(executor.map(rotation, ids))
    found = [k for k, one in enumerate(rotations) if one is not None]
    chosen = numpy.array([ids[k] for k in found], numpy.int64).reshape(-1, 2)
    return Pairs(
        chosen[:, 0],
        chosen[:, 1],
        numpy.array([rotations[k] for k in found], numpy.float64).reshape(-1, 4),
        numpy.array(
            [counts[pycolmap.image_pair_to_pair_id(*ids[k])] for k in found],
            numpy.int64,
        ),
    )


def _complete(
    pycolmap: typing.Any,
    geometry: typing.Any,
    cameras: tuple[typing.Any, typing.Any],
    points: list[Doubles],
) -> bool:
    """Estimates the matrix of a TwoViewGeometry if its database has none."""
    kinds = pycolmap.TwoViewGeometryConfiguration
    matches = numpy.asarray(geometry.inlier_matches)
    if len(matches) == 0:
        return False
    first, second = (points[side][matches[:, side]] for side in (0, 1))
    if geometry.config == kinds.UNCALIBRATED:
        if geometry.F is None:
            geometry.F = fundamental_matrix(first, second)
        return geometry.F is not None
    arguments = [first, second]
    if geometry.config in (kinds.CALIBRATED, kinds.CALIBRATED_RIG):
        name, estimate = "E", pycolmap.estimate_essential_matrix
        arguments += cameras
    else:
        name, estimate = "H", pycolmap.estimate_homography_matrix
    if getattr(geometry, name) is None:
        found = estimate(*arguments, pycolmap.RANSACOptions(random_seed=0))
        if found is None:
            return False
        setattr(geometry, name, found[name])
    return True


def fundamental_matrix(first: Doubles, second: Doubles) -> Doubles | None:
    """F with second^T F first = 0, of matches (n, 2), by the normalised eight-point
    method (Hartley 1997). None if there are fewer."""
    if len(first) < 8:
        return None
    points = []
    scalings = []
    for pixels in (first, second):
        center = pixels.mean(axis=0)
        scale = numpy.sqrt(2.0 / ((pixels - center) ** 2).sum(axis=1).mean())
        scaling = numpy.diag([scale, scale, 1.0])
        scaling[:2, 2] = -scale * center
        scalings.append(scaling)
        points.append(numpy.insert(scale * (pixels - center), 2, 1.0, axis=1))
    rows = numpy.einsum("ni,nj->nij", points[1], points[0]).reshape(-1, 9)
    u, d, v = numpy.linalg.svd(numpy.linalg.eigh(rows.T @ rows)[1][:, 0].reshape(3, 3))
    return numpy.asarray(scalings[1].T @ (u * [d[0], d[1], 0.0] @ v) @ scalings[0])


def connected(first: Numbers, second: Numbers, size: int) -> Numbers:
    """Labels of the components of a graph, (size,): each the least number in its
    component. first, second: (n,), the ends of its edges."""
    labels = numpy.arange(size)
    while True:
        before = labels
        lowest = numpy.minimum(labels[first], labels[second])
        labels = labels.copy()
        for ends in (first, second, before[first], before[second]):
            numpy.minimum.at(labels, ends, lowest)
        labels = labels[labels]
        if numpy.array_equal(before, labels):
            return labels


def components(model: typing.Any, pairs: Pairs) -> list[Pairs]:
    """The pairs of each connected set of frames, that of most frames first."""
    frames = _frames_of(model, pairs)
    ids, number = numpy.unique(frames, return_inverse=True)
    first, second = number.reshape(frames.shape)
    labels = connected(first, second, len(ids))
    names, sizes = numpy.unique(labels, return_counts=True)
    order = names[numpy.argsort(-sizes, kind="stable")]
    return [pairs.select(labels[first] == label) for label in order]


def average_rotations(
    pycolmap: typing.Any,
    model: typing.Any,
    pairs: Pairs,
    options: typing.Any,
    values: dict[str, typing.Any],
) -> None:
    """Registers the frames of pairs, which are connected, with their rotations.

    options: a pycolmap.RotationEstimatorOptions. Sensors of rigs whose pose is
    unknown get a rotation, and NaN as translation. values: as for ceres_ext.solve.
    """
    images = {
        i: model.image(i) for i in numpy.unique([pairs.first, pairs.second]).tolist()
    }
    sensors = {i: _sensor_rotation(model, image) for i, image in images.items()}
    if any(rotation is None for rotation in sensors.values()):
        # As if these sensors had frames of their own.
        nodes = {
            i: images[i].frame_id if rotation is not None else -i
            for i, rotation in sensors.items()
        }
        found = _average(pairs, nodes, sensors, options, values)
        _set_sensors(pycolmap, model, images, found)
        sensors = {i: _sensor_rotation(model, image) for i, image in images.items()}
    nodes = {
        i: images[i].frame_id
        for i, rotation in sensors.items()
        if rotation is not None
    }
    for frame_id, rotation in _average(pairs, nodes, sensors, options, values).items():
        model.frame(frame_id).rig_from_world = pycolmap.Rigid3d(
            pycolmap.Rotation3d(rotation), numpy.zeros(3)
        )
        model.register_frame(frame_id)


def rotation_errors(model: typing.Any, pairs: Pairs) -> Doubles:
    """(n,), the angle between each pair and the model, radians; 0 for images without
    a pose."""
    ids, number = numpy.unique([pairs.first, pairs.second], return_inverse=True)
    images = [model.image(i) for i in ids.tolist()]
    has_pose = numpy.array([image.has_pose for image in images], numpy.bool_)
    rotations = numpy.tile([0.0, 0.0, 0.0, 1.0], (len(images), 1))
    for k in numpy.flatnonzero(has_pose):
        rotations[k] = images[k].cam_from_world().rotation.quat
    first, second = number.reshape(2, -1)
    errors = _angles(rotations[first], rotations[second], pairs.rotations)
    errors[~(has_pose[first] & has_pose[second])] = 0.0
    return errors


def _frames_of(model: typing.Any, pairs: Pairs) -> Numbers:
    """(2, n), ids of frames."""
    ids, number = numpy.unique([pairs.first, pairs.second], return_inverse=True)
    frames = numpy.array([model.image(i).frame_id for i in ids.tolist()], numpy.int64)
    return frames[number.reshape(2, -1)]


def _sensor_rotation(model: typing.Any, image: typing.Any) -> Doubles | None:
    """The rotation of sensor_from_rig, (4,); None if it is unknown."""
    if image.is_ref_in_frame():
        return numpy.array([0.0, 0.0, 0.0, 1.0])
    rig = model.rig(model.frame(image.frame_id).rig_id)
    sensor = model.camera(image.camera_id).sensor_id
    if not rig.has_sensor_from_rig(sensor):
        return None
    return numpy.array(rig.sensor_from_rig(sensor).rotation.quat)


def _set_sensors(
    pycolmap: typing.Any,
    model: typing.Any,
    images: dict[int, typing.Any],
    rotations: dict[int, Doubles],
) -> None:
    """rotations: of frames by id, and of images with unknown sensors by -id."""
    samples: dict[int, list[int]] = {}
    for image_id, image in images.items():
        if -image_id in rotations and image.frame_id in rotations:
            samples.setdefault(image.camera_id, []).append(image_id)
    for camera_id, image_ids in samples.items():
        sensor_from_rig = pycolmap.average_quaternions(
            [
                pycolmap.Rotation3d(
                    multiply(rotations[-i], invert(rotations[images[i].frame_id]))
                )
                for i in image_ids
            ],
            [1.0] * len(image_ids),
        )
        frame = model.frame(images[image_ids[0]].frame_id)
        model.rig(frame.rig_id).set_sensor_from_rig(
            model.camera(camera_id).sensor_id,
            pycolmap.Rigid3d(sensor_from_rig, numpy.full(3, numpy.nan)),
        )


def _average(
    pairs: Pairs,
    nodes: dict[int, int],
    sensors: dict[int, Doubles | None],
    options: typing.Any,
    values: dict[str, typing.Any],
) -> dict[int, Doubles]:
    """Rotations of nodes, of the largest set that is connected. nodes: by image."""
    identity = numpy.array([0.0, 0.0, 0.0, 1.0])
    rows = numpy.flatnonzero(
        [
            i in nodes and j in nodes and nodes[i] != nodes[j]
            for i, j in zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)
        ]
    )
    ends = []
    places = []
    for images in (pairs.first[rows].tolist(), pairs.second[rows].tolist()):
        ends.append([nodes[i] for i in images])
        known = [identity if sensors[i] is None else sensors[i] for i in images]
        places.append(numpy.array(known, numpy.float64).reshape(-1, 4))
    measured = multiply(
        invert(places[1]), multiply(pairs.rotations[rows], places[0])
    )
    ids, number = numpy.unique(
        numpy.array(ends, numpy.int64).reshape(2, -1), return_inverse=True
    )
    if len(ids) == 0:
        return {}
    first, second = number.reshape(2, -1)
    labels = connected(first, second, len(ids))
    largest = numpy.bincount(labels).argmax()
    used = labels[first] == largest
    first, second, measured = first[used], second[used], measured[used]
    matches = pairs.num_matches[rows[used]]
    rotations = _span(first, second, measured, matches, len(ids))
    _solve(rotations, first, second, measured, matches, options, values)
    chosen = numpy.flatnonzero(labels == largest)
    return {int(ids[k]): rotations[k] for k in chosen}


def _num_agreeing(
    first: Numbers, second: Numbers, measured: Doubles, size: int
) -> Numbers:
    """The number of triangles with each pair whose rotations agree."""
    directed = numpy.stack([measured, invert(measured)], axis=1).reshape(-1, 4)
    to: list[dict[int, int]] = [{} for _ in range(size)]
    for k, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        to[i][j] = 2 * k
        to[j][i] = 2 * k + 1
    ways: list[tuple[int, int, int]] = []
    for k, (i, j) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        corners = sorted(to[i].keys() & to[j].keys())[:_MAX_TRIANGLES]
        ways.extend((k, to[i][corner], to[corner][j]) for corner in corners)
    pair, there, back = numpy.array(ways, numpy.int64).reshape(-1, 3).T
    errors = _angle(
        multiply(invert(measured[pair]), multiply(directed[back], directed[there]))
    )
    return numpy.bincount(pair[errors < _MAX_TRIANGLE_ERROR], minlength=len(first))


def _span(
    first: Numbers, second: Numbers, measured: Doubles, matches: Numbers, size: int
) -> Doubles:
    """Rotations along the spanning tree of the pairs that agree with most others, then
    of most matches; the first is the identity."""
    agreeing = _num_agreeing(first, second, measured, size)
    rotations = numpy.tile([0.0, 0.0, 0.0, 1.0], (size, 1))
    # By node: the rank, the other node, and the pair, forward or backward.
    edges: list[list[tuple[int, int, int, bool]]] = [[] for _ in range(size)]
    rank = numpy.argsort(numpy.lexsort((-matches, -agreeing)))
    for k, (i, j, order) in enumerate(
        zip(first.tolist(), second.tolist(), rank.tolist(), strict=True)
    ):
        edges[i].append((order, j, k, True))
        edges[j].append((order, i, k, False))
    root = int(first.min())
    done = {root}
    waiting = [(*edge, root) for edge in edges[root]]
    heapq.heapify(waiting)
    while waiting:
        _, node, k, is_forward, parent = heapq.heappop(waiting)
        if node not in done:
            done.add(node)
            step = measured[k] if is_forward else invert(measured[k])
            rotations[node] = multiply(step, rotations[parent])
            for edge in edges[node]:
                if edge[1] not in done:
                    heapq.heappush(waiting, (*edge, node))
    return rotations


def _solve(
    rotations: Doubles,
    first: Numbers,
    second: Numbers,
    measured: Doubles,
    matches: Numbers,
    options: typing.Any,
    values: dict[str, typing.Any],
) -> None:
    """Refines rotations, first in the L1 norm, then with the robust weights of the
    options, until they settle."""
    problem = ArrayProblem()
    constant = numpy.zeros(len(rotations), numpy.bool_)
    constant[first.min()] = True
    blocks = problem.add_parameters(
        rotations, constant=constant, manifold=EigenQuaternionManifold()
    )
    # A residual block has to name different blocks.
    origins = problem.add_parameters(
        numpy.zeros((2, 3)), constant=numpy.ones(2, numpy.bool_)
    )
    zero = numpy.zeros(len(first), numpy.int32)
    weights = numpy.ones(len(first))
    problem.add_residuals(
        "RelativePosePrior",
        numpy.hstack([measured, numpy.zeros((len(first), 3))]),
        [
            (blocks, second.astype(numpy.int32)),
            (origins, zero),
            (blocks, first.astype(numpy.int32)),
            (origins, zero + 1),
        ],
        weights=weights,
    )
    own = numpy.ones(len(first))
    if options.reweighting.name == "INLIER_MATCH_COUNT":
        own = matches / matches.max()
    for norm, max_iterations, threshold in (
        ("L1", options.max_num_l1_iterations, options.l1_step_convergence_threshold),
        (
            options.weight_type.name,
            options.max_num_irls_iterations,
            options.irls_step_convergence_threshold,
        ),
    ):
        sigma = numpy.radians(options.irls_loss_parameter_sigma)
        for iteration in range(max_iterations):
            before = rotations.copy()
            errors = _angles(rotations[first], rotations[second], measured)
            if norm == "L1":
                # Squares at first: wrong pairs of the start have no errors.
                part = iteration / max(max_iterations - 1, 1)
                sigma = max(errors.max(), _MIN_ANGLE) ** (1 - part) * _MIN_ANGLE**part
                threshold = threshold if part == 1.0 else 0.0
            weights[:] = own * _weights(norm, errors, sigma)
            solve(problem, **{**_SOLVER, **values})
            if _angle(multiply(rotations, invert(before))).mean() < threshold:
                break


def _weights(norm: str, errors: Doubles, sigma: float) -> Doubles:
    """Weights of squared residuals, in (0, 1]."""
    if norm == "GEMAN_MCCLURE":
        return numpy.asarray((sigma**2 / (sigma**2 + errors**2)) ** 2)
    if norm == "L1":
        return numpy.asarray(sigma / numpy.maximum(errors, sigma))
    return numpy.asarray((_MIN_ANGLE / numpy.maximum(errors, _MIN_ANGLE)) ** 1.5)


def _angles(first: Doubles, second: Doubles, measured: Doubles) -> Doubles:
    """The angles of measured^-1 second first^-1, (n,), radians."""
    found = multiply(second, invert(first))
    return _angle(multiply(invert(measured), found))


def _angle(rotations: Doubles) -> Doubles:
    sine = numpy.linalg.norm(rotations[..., :3], axis=-1)
    return numpy.asarray(2.0 * numpy.arctan2(sine, numpy.abs(rotations[..., 3])))


def multiply(a: Doubles, b: Doubles) -> Doubles:
    """The rotation b, then a."""
    result = numpy.empty(numpy.broadcast_shapes(a.shape, b.shape))
    result[..., :3] = (
        a[..., 3:] * b[..., :3]
        + b[..., 3:] * a[..., :3]
        + numpy.cross(a[..., :3], b[..., :3])
    )
    result[..., 3] = a[..., 3] * b[..., 3] - (a[..., :3] * b[..., :3]).sum(axis=-1)
    return result


def invert(rotations: Doubles) -> Doubles:
    return numpy.asarray(rotations * numpy.array([-1.0, -1.0, -1.0, 1.0]))
