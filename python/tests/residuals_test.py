# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The residuals that add_residuals knows by name, against numpy."""

import numpy
import pytest
from conftest import OPTIONS

import ceres_ext

N = 6
ROTATIONS = ["EIGEN_QUATERNION", "QUATERNION", "ANGLE_AXIS"]
# Parameters with which all points below have images.
CAMERAS = {
    "SIMPLE_PINHOLE": [900, 500, 400],
    "PINHOLE": [900, 910, 500, 400],
    "SIMPLE_RADIAL": [900, 500, 400, 0.02],
    "RADIAL": [900, 500, 400, 0.02, -0.01],
    "OPENCV": [900, 910, 500, 400, 0.02, -0.01, 1e-3, -2e-3],
    "OPENCV_FISHEYE": [900, 910, 500, 400, 0.02, -0.01, 1e-3, -2e-3],
    "FULL_OPENCV": [900, 910, 500, 400, 0.02, -0.01, 1e-3, -2e-3]
    + [1e-3, 0.01, -1e-3, 1e-4],
    "FOV": [900, 910, 500, 400, 0.3],
    "SIMPLE_RADIAL_FISHEYE": [900, 500, 400, 0.02],
    "RADIAL_FISHEYE": [900, 500, 400, 0.02, -0.01],
    "THIN_PRISM_FISHEYE": [900, 910, 500, 400, 0.02, -0.01, 1e-3, -2e-3]
    + [1e-3, 1e-3, 2e-3, -1e-3],
    "RAD_TAN_THIN_PRISM_FISHEYE": [900, 910, 500, 400, 0.02, -0.01]
    + [1e-3] * 4
    + [1e-3, -2e-3, 1e-3, 1e-4, 2e-3, -1e-4],
    "SIMPLE_DIVISION": [900, 500, 400, -0.02],
    "DIVISION": [900, 910, 500, 400, -0.02],
    "SIMPLE_FISHEYE": [900, 500, 400],
    "FISHEYE": [900, 910, 500, 400],
    "EUCM": [900, 910, 500, 400, 0.4, 1.1],
    "EQUIRECTANGULAR": [1000, 500],
}
# Rounding of some operations on values of up to 1e3 pixels.
PIXELS = dict(rtol=0, atol=1e4 * numpy.finfo(float).eps)


def quaternion(rotation, values):
    """w, x, y, z of a rotation, (n, 3 or 4)."""
    if rotation == "QUATERNION":
        return values
    if rotation == "EIGEN_QUATERNION":
        return values[:, [3, 0, 1, 2]]
    angle = numpy.linalg.norm(values, axis=1, keepdims=True)
    return numpy.hstack([numpy.cos(angle / 2), numpy.sin(angle / 2) * values / angle])


def matrices(rotation, values):
    """Rotation matrices (n, 3, 3)."""
    w, x, y, z = quaternion(rotation, values).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return numpy.moveaxis(numpy.array(rows), -1, 0)


def log(matrix):
    """Rotation vectors of angles below pi, (n, 3)."""
    axis = numpy.stack(
        [
            matrix[:, 2, 1] - matrix[:, 1, 2],
            matrix[:, 0, 2] - matrix[:, 2, 0],
            matrix[:, 1, 0] - matrix[:, 0, 1],
        ],
        axis=1,
    )
    sine = numpy.linalg.norm(axis, axis=1) / 2
    cosine = (numpy.trace(matrix, axis1=1, axis2=2) - 1) / 2
    return axis * (numpy.arctan2(sine, cosine) / (2 * sine))[:, None]


def transform(rotation, pose, points):
    """R X + t."""
    k = pose.shape[1] - 3
    rotated = numpy.einsum("nij,nj->ni", matrices(rotation, pose[:, :k]), points)
    return rotated + pose[:, k:]


def make_poses(rotation, n, seed, angle=0.2, shift=0.5):
    generator = numpy.random.default_rng(seed)
    vectors = generator.uniform(-angle, angle, (n, 3))
    shifts = generator.uniform(-shift, shift, (n, 3))
    if rotation == "ANGLE_AXIS":
        return numpy.hstack([vectors, shifts])
    q = quaternion("ANGLE_AXIS", vectors)
    if rotation == "EIGEN_QUATERNION":
        q = q[:, [1, 2, 3, 0]]
    return numpy.hstack([q, shifts])


def make_points(n=N, seed=1):
    generator = numpy.random.default_rng(seed)
    return generator.uniform([-2, -2, 4], [2, 2, 8], (n, 3))


def make(name, observations, arrays, **arguments):
    """A problem of one array of residuals; block i for residual block i."""
    problem = ceres_ext.ArrayProblem()
    blocks = [(problem.add_parameters(values), None) for values in arrays]
    problem.add_residuals(name, observations, blocks, **arguments)
    return problem


def residuals(*arguments, **named):
    evaluation = ceres_ext.evaluate(make(*arguments, **named), device="HOST")
    (values,) = evaluation.residuals
    return values


def split(pose, k=4):
    return [numpy.ascontiguousarray(pose[:, :k]), numpy.ascontiguousarray(pose[:, k:])]


@pytest.mark.parametrize("camera_model", CAMERAS)
def test_reprojection_errors(camera_model):
    parameters = numpy.array(CAMERAS[camera_model], float)
    cameras = numpy.tile(parameters, (N, 1))
    points = make_points()
    pixels = numpy.random.default_rng(2).uniform(0, 1000, (N, 2))

    def expected(in_camera):
        seen = ceres_ext.colmap.img_from_cam(camera_model, parameters, in_camera)
        return seen - pixels

    for rotation in ROTATIONS:
        poses = make_poses(rotation, N, 3)
        found = residuals(
            "ReprojectionError",
            pixels,
            [points, poses, cameras],
            camera_model=camera_model,
            rotation=rotation,
        )
        error = expected(transform(rotation, poses, points))
        numpy.testing.assert_allclose(found, error, **PIXELS)
    default = ROTATIONS[0]
    poses = make_poses(default, N, 3)
    found = residuals(
        "ReprojectionError",
        pixels,
        [*split(poses), points, cameras],
        camera_model=camera_model,
    )
    error = expected(transform(default, poses, points))
    numpy.testing.assert_allclose(found, error, **PIXELS)

    sensors = make_poses(default, N, 4)
    error = expected(
        transform(default, sensors, transform(default, poses, points)),
    )
    found = residuals(
        "RigReprojectionError",
        pixels,
        [points, sensors, poses, cameras],
        camera_model=camera_model,
    )
    numpy.testing.assert_allclose(found, error, **PIXELS)
    found = residuals(
        "ConstantRigReprojectionError",
        numpy.hstack([pixels, sensors]),
        [points, poses, cameras],
        camera_model=camera_model,
    )
    numpy.testing.assert_allclose(found, error, **PIXELS)


def make_covariances(n, k, seed):
    factors = numpy.random.default_rng(seed).normal(size=(n, k, k))
    return factors @ factors.transpose(0, 2, 1) + 0.1 * numpy.eye(k)


def check_prior(name, observations, forms, error, **arguments):
    """error: what numpy finds. forms: each a list of arrays."""
    n, k = error.shape
    for arrays in forms:
        found = residuals(name, observations, arrays, **arguments)
        numpy.testing.assert_allclose(found, error, rtol=0, atol=1e-13)
        covariances = make_covariances(n, k, 5)
        for given in (covariances, covariances[0].copy()):
            problem = make(
                name, observations, arrays, covariances=given, **arguments
            )
            cost = ceres_ext.evaluate(problem, device="HOST").cost
            inverse = numpy.broadcast_to(numpy.linalg.inv(given), (n, k, k))
            squared = numpy.einsum("ni,nij,nj->", error, inverse, error)
            # The conditions of these matrices are below 1e4.
            assert cost == pytest.approx(0.5 * squared, rel=1e-11)


@pytest.mark.parametrize("rotation", ROTATIONS)
def test_priors_of_poses(rotation):
    poses = make_poses(rotation, N, 6)
    k = poses.shape[1] - 3
    R = matrices(rotation, poses[:, :k])
    t = poses[:, k:]
    forms = [[poses], split(poses, k)]
    positions = numpy.random.default_rng(7).normal(size=(N, 3))
    centres = -numpy.einsum("nji,nj->ni", R, t)
    check_prior(
        "PositionPrior", positions, forms, positions - centres, rotation=rotation
    )

    def pose_error(R, t, measured):
        R_m = matrices(rotation, measured[:, :k])
        D = R @ R_m.transpose(0, 2, 1)
        d = t - numpy.einsum("nij,nj->ni", D, measured[:, k:])
        return numpy.hstack([log(D), d])

    measured = make_poses(rotation, N, 8)
    check_prior(
        "PosePrior", measured, forms, pose_error(R, t, measured), rotation=rotation
    )
    others = make_poses(rotation, N, 9)
    R_j = matrices(rotation, others[:, :k])
    R_ij = R @ R_j.transpose(0, 2, 1)
    t_ij = t - numpy.einsum("nij,nj->ni", R_ij, others[:, k:])
    check_prior(
        "RelativePosePrior",
        measured,
        [[poses, others], [*split(poses, k), *split(others, k)]],
        pose_error(R_ij, t_ij, measured),
        rotation=rotation,
    )


def test_priors_of_points():
    points = make_points()
    measured = make_points(seed=10)
    check_prior("PointPrior", measured, [[points]], points - measured)


def make_directions():
    """Rows of DirectionError and the values of their blocks."""
    centers, points = make_points(seed=3), make_points(seed=4)
    scales = numpy.linspace(0.5, 2.0, N)[:, None]
    directions = make_points(seed=5)
    return directions, centers, points, scales


def check_directions(name, observations, arrays, error):
    found = residuals(name, observations, arrays)
    numpy.testing.assert_allclose(found, error, rtol=0, atol=1e-13)


def test_directions():
    directions, centers, points, scales = make_directions()
    check_directions(
        "DirectionError",
        directions,
        [centers, points, scales],
        directions - scales * (points - centers),
    )


def test_directions_in_rigs():
    directions, centers, points, scales = make_directions()
    offsets = make_points(seed=6)
    rig_scales = numpy.full((N, 1), 1.5)
    check_directions(
        "RigDirectionError",
        numpy.hstack([directions, offsets]),
        [centers, points, scales, rig_scales],
        directions - scales * (points - centers - rig_scales * offsets),
    )
    rotations = make_points(seed=7)[:, :, None] * make_points(seed=8)[:, None, :]
    places = numpy.einsum("nij,nj->ni", rotations, offsets)
    check_directions(
        "SensorDirectionError",
        numpy.hstack([directions, rotations.reshape(N, 9)]),
        [centers, points, scales, offsets],
        directions - scales * (points - centers - places),
    )


@pytest.mark.parametrize(
    ("name", "columns", "sizes", "arguments"),
    [
        ("ReprojectionError", 2, [3, 7, 8], {"camera_model": "OPENCV"}),
        (
            "ReprojectionError",
            2,
            [3, 6, 8],
            {"camera_model": "OPENCV", "rotation": "ANGLE_AXIS"},
        ),
        ("RigReprojectionError", 2, [3, 7, 7, 8], {"camera_model": "OPENCV"}),
        ("ConstantRigReprojectionError", 9, [3, 7, 8], {"camera_model": "OPENCV"}),
        ("PositionPrior", 3, [7], {}),
        ("PosePrior", 7, [7], {}),
        ("RelativePosePrior", 6, [6, 6], {"rotation": "ANGLE_AXIS"}),
        ("PointPrior", 3, [3], {}),
        ("IntrinsicsPrior", 16, [8], {"camera_model": "OPENCV"}),
    ],
)
@pytest.mark.parametrize("loss", [None, ceres_ext.CauchyLoss(3.0)])
def test_gradients(name, columns, sizes, arguments, loss):
    def values(size, seed):
        if size == 3:
            return make_points(seed=seed)
        if size == 8:
            return numpy.tile(numpy.array(CAMERAS["OPENCV"], float), (N, 1))
        rotation = "ANGLE_AXIS" if size == 6 else "EIGEN_QUATERNION"
        return make_poses(rotation, N, seed)

    arrays = [values(size, 11 + i) for i, size in enumerate(sizes)]
    generator = numpy.random.default_rng(12)
    observations = generator.uniform(0, 1000, (N, 2)) if columns in (2, 9) else None
    if columns == 9:
        observations = numpy.hstack([observations, values(7, 13)])
    elif columns == 16:  # parameters and their weights
        observations = numpy.hstack(
            [values(8, 13) + 1, generator.uniform(0.01, 1, (N, 8))]
        )
    elif observations is None:
        observations = values(columns, 14)
    weights = generator.uniform(0.5, 2, N)
    problem = make(name, observations, arrays, loss=loss, weights=weights, **arguments)
    gradient = ceres_ext.evaluate(problem, device="HOST", gradient=True).gradient
    for array, of_array in zip(arrays, gradient, strict=True):
        for j in range(array.shape[1]):
            # The costs are sums of functions of a row each.
            at = []
            kept = array[:, j].copy()
            # A prior of intrinsics is a difference, whatever their size.
            largest = 1.0 if columns == 16 else abs(kept).max()
            step = 1e-5 * max(1.0, largest)
            for sign in (1, -1):
                array[:, j] = kept + sign * step
                all_of = ceres_ext.evaluate(
                    problem, device="HOST", apply_loss_function=False
                ).residuals[0]
                s = (all_of**2).sum(axis=1)
                rho = s if loss is None else 9 * numpy.log1p(s / 9)
                at.append(0.5 * weights * rho)
            array[:, j] = kept
            numeric = (at[0] - at[1]) / (2 * step)
            # Truncation: the third derivative times step^2 / 6; rounding: the
            # cost times eps / step.
            scale = numpy.abs(of_array).max() + at[0].max()
            numpy.testing.assert_allclose(of_array[:, j], numeric, atol=1e-7 * scale)


def test_a_survey_is_solved():
    """Shared intrinsics, positions, a pose, control points: the truth is found."""
    poses = make_poses("EIGEN_QUATERNION", 8, 20, angle=0.3, shift=3.0)
    poses[:, 6] += 2.0
    points = make_points(60, 21)
    camera = numpy.array([CAMERAS["RADIAL"]], float)
    image_index, point_index = (
        index.ravel().astype(numpy.int32)
        for index in numpy.meshgrid(range(8), range(60), indexing="ij")
    )
    in_cameras = transform("EIGEN_QUATERNION", poses[image_index], points[point_index])
    pixels = ceres_ext.colmap.img_from_cam("RADIAL", camera[0], in_cameras)
    R = matrices("EIGEN_QUATERNION", poses[:, :4])
    positions = -numpy.einsum("nji,nj->ni", R, poses[:, 4:])
    relative = make_relative(poses[0], poses[1])

    generator = numpy.random.default_rng(22)
    start_points = points + generator.normal(0, 0.05, points.shape)
    start_poses = poses.copy()
    start_poses[:, 4:] += generator.normal(0, 0.05, (8, 3))
    start_camera = camera * 1.02
    problem = ceres_ext.ArrayProblem()
    blocks = {
        "points": problem.add_parameters(start_points),
        "poses": problem.add_parameters(
            start_poses,
            manifold=ceres_ext.ProductManifold(
                ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
            ),
        ),
        "camera": problem.add_parameters(start_camera),
    }
    shared = numpy.zeros(len(pixels), numpy.int32)
    problem.add_residuals(
        "ReprojectionError",
        pixels,
        [
            (blocks["points"], point_index),
            (blocks["poses"], image_index),
            (blocks["camera"], shared),
        ],
        camera_model="RADIAL",
        loss=ceres_ext.HuberLoss(2.0),
    )
    problem.add_residuals(
        "PositionPrior",
        positions,
        [(blocks["poses"], None)],
        covariances=numpy.diag([0.01, 0.01, 0.04]),
    )
    first, second = (numpy.array([i], numpy.int32) for i in (0, 1))
    problem.add_residuals(
        "RelativePosePrior",
        relative,
        [(blocks["poses"], first), (blocks["poses"], second)],
    )
    problem.add_residuals("PosePrior", poses[:1].copy(), [(blocks["poses"], first)])
    problem.add_residuals(
        "PointPrior",
        points[:4].copy(),
        [(blocks["points"], numpy.arange(4, dtype=numpy.int32))],
        covariances=1e-4 * numpy.eye(3),
    )
    summary = ceres_ext.solve(problem, device="HOST", **TIGHT)
    assert summary.path == "FULL", summary.path_reason
    assert summary.final_cost < 1e-15
    numpy.testing.assert_allclose(start_points, points, atol=1e-7)
    numpy.testing.assert_allclose(start_camera, camera, rtol=1e-7, atol=1e-7)
    diagonal = ceres_ext.covariance(problem, [blocks["camera"]]).diagonals[0]
    assert diagonal.shape == (1, 5, 5)


TIGHT = {
    name: value
    for name, value in OPTIONS.items()
    if name.endswith(("tolerance", "seconds"))
}


def make_relative(i, j):
    """i_from_world world_from_j."""
    w1, v1 = i[3], i[:3]
    w2, v2 = j[3], -j[:3]
    w = w1 * w2 - v1 @ v2
    v = w1 * v2 + w2 * v1 + numpy.cross(v1, v2)
    rotation = numpy.array([[*v, w]])
    R = matrices("EIGEN_QUATERNION", rotation)[0]
    return numpy.hstack([rotation, (i[4:] - R @ j[4:])[None]])


GOOD = {
    "cost_function": "ReprojectionError",
    "observations": numpy.zeros((N, 2)),
    "blocks": [(0, None), (1, None), (2, None)],
    "camera_model": "PINHOLE",
}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"cost_function": "ReprojectionEror"},
            ValueError,
            "cost_function: expected one of BalReprojectionError, .*GnssPositionError, "
            "found 'ReprojectionEror'",
        ),
        (
            {"cost_function": 3},
            TypeError,
            "cost_function: expected a name or what compile_cost_function returned, "
            "found int",
        ),
        (
            {"camera_model": "PINHOLES"},
            ValueError,
            "camera_model: ReprojectionError: expected one of SIMPLE_PINHOLE, .*, "
            "found 'PINHOLES'",
        ),
        (
            {"camera_model": None},
            ValueError,
            "camera_model: ReprojectionError: expected one of .*, found None",
        ),
        (
            {"rotation": "MATRIX"},
            ValueError,
            "rotation: ReprojectionError: expected one of EIGEN_QUATERNION, .*, "
            "found 'MATRIX'",
        ),
        (
            {"cost_function": "RigReprojectionError", "rotation": "ANGLE_AXIS"},
            ValueError,
            "rotation: RigReprojectionError: expected one of EIGEN_QUATERNION, found",
        ),
        (
            {"blocks": [(0, None), (1, None)]},
            ValueError,
            r"blocks: ReprojectionError: expected 3 \(point, cam_from_world, camera\) "
            r"or 4 \(rotation, translation, point, camera\), found 2",
        ),
        (
            {"blocks": [(0, None), (2, None), (1, None)]},
            ValueError,
            r"blocks\[1\]: ReprojectionError: expected parameters of shape \(any, 7\), "
            r"cam_from_world, found \(6, 4\)",
        ),
        (
            {"blocks": [(0, None), (1, None), (3, None)]},
            ValueError,
            r"blocks\[2\]: expected a number that add_parameters returned, found 3",
        ),
        (
            {"observations": numpy.zeros((N, 3))},
            ValueError,
            r"observations: expected an array of shape \(any, 2\), found \(6, 3\)",
        ),
        (
            {"covariances": numpy.eye(2)},
            ValueError,
            "covariances: ReprojectionError has none; expected None",
        ),
        (
            {"camera_model": "PINHOLE", **{"cost_function": "PointPrior"}},
            ValueError,
            "camera_model: PointPrior does not depend on it; expected None, found "
            "'PINHOLE'",
        ),
    ],
)
def test_refusals(arguments, error, words):
    problem = ceres_ext.ArrayProblem()
    problem.add_parameters(make_points())
    problem.add_parameters(make_poses("EIGEN_QUATERNION", N, 1))
    problem.add_parameters(numpy.tile(numpy.array(CAMERAS["PINHOLE"], float), (N, 1)))
    with pytest.raises(error, match=f"^{words}"):
        problem.add_residuals(**{**GOOD, **arguments})
    problem.add_residuals(**GOOD)


@pytest.mark.parametrize(
    ("observations", "covariances", "error", "words"),
    [
        (
            numpy.zeros((N, 7)),
            None,
            ValueError,
            "observations: PosePrior: expected finite values, and quaternions that "
            "are not 0, found others in row 0",
        ),
        (
            make_poses("EIGEN_QUATERNION", N, 1),
            -numpy.eye(6),
            ValueError,
            "covariances: of row 0: the covariance is not positive definite",
        ),
        (
            make_poses("EIGEN_QUATERNION", N, 1),
            numpy.eye(3),
            ValueError,
            r"covariances: expected an array of shape \(6, 6\), found \(3, 3\)",
        ),
        (
            make_poses("EIGEN_QUATERNION", N, 1),
            numpy.ones((2, 6, 6)),
            ValueError,
            r"covariances: expected an array of shape \(6, 6, 6\), found \(2, 6, 6\)",
        ),
        (
            make_poses("EIGEN_QUATERNION", N, 1),
            0.1,
            TypeError,
            "covariances: expected a numpy array of float64, found float",
        ),
    ],
)
def test_refused_priors(observations, covariances, error, words):
    problem = ceres_ext.ArrayProblem()
    poses = problem.add_parameters(make_poses("EIGEN_QUATERNION", N, 1))
    with pytest.raises(error, match=f"^{words}"):
        problem.add_residuals(
            "PosePrior", observations, [(poses, None)], covariances=covariances
        )


def test_intrinsics_bounds():
    lower, upper = ceres_ext.colmap.intrinsics_bounds(
        "SIMPLE_RADIAL", 200, 100, max_extra_param=0.5
    )
    assert lower.tolist() == [20.0, 0.0, 0.0, -0.5]
    assert upper.tolist() == [2000.0, 200.0, 100.0, 0.5]
    with pytest.raises(ValueError, match="^camera_model: expected one of"):
        ceres_ext.colmap.intrinsics_bounds("SIMPLE", 200, 100)
    with pytest.raises(ValueError, match="^max_focal_length_ratio: expected a number"):
        ceres_ext.colmap.intrinsics_bounds("PINHOLE", 2, 1, max_focal_length_ratio=0.1)
