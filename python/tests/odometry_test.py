# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Preintegration and the residuals of odometry, against numpy."""

import numpy
import pytest
from residuals_test import make_points, make_poses, matrices, residuals

import ceres_ext

N = 6
GRAVITY = numpy.array([0.0, 0.0, -9.81])
NOISE = dict(
    gyroscope_noise=2e-4,
    accelerometer_noise=2e-3,
    gyroscope_bias_noise=2e-5,
    accelerometer_bias_noise=3e-4,
)
# Some operations on values of up to 1e2.
ROUNDING = dict(rtol=0, atol=1e3 * numpy.finfo(float).eps)


def rotations(poses):
    return matrices("EIGEN_QUATERNION", poses[:, :4])


def multiply(matrix, vectors):
    return numpy.einsum("nij,nj->ni", matrix, vectors)


def back(matrix, vectors):
    return numpy.einsum("nji,nj->ni", matrix, vectors)


def turning(duration=1.0, bias=None):
    """A constant rate about z without a force."""
    increment = ceres_ext.Preintegration(**NOISE, bias=bias)
    for _ in range(10):
        increment.add(duration / 10, numpy.array([0, 0, 0.6]), numpy.zeros(3))
    return increment


def test_increments():
    increment = turning()
    assert increment.duration == pytest.approx(1.0, abs=1e-15)
    expected = [0, 0, numpy.sin(0.3), numpy.cos(0.3)]
    numpy.testing.assert_allclose(increment.rotation, expected, **ROUNDING)
    assert not increment.position.any() and not increment.velocity.any()
    # Half of a constant force, seen from the body at the beginning.
    falling = ceres_ext.Preintegration(**NOISE, bias=numpy.array([0, 0, 0, 0.5, 0, 0]))
    for _ in range(10):
        falling.add(0.2, numpy.zeros(3), numpy.array([1.5, 2.0, 0.0]))
    numpy.testing.assert_allclose(falling.velocity, [2, 4, 0], **ROUNDING)
    numpy.testing.assert_allclose(falling.position, [2, 4, 0], **ROUNDING)
    # Velocity is minus the integral of the bias.
    jacobian = falling.bias_jacobian
    assert jacobian.shape == (9, 6)
    numpy.testing.assert_allclose(jacobian[6:, 3:], -2 * numpy.eye(3), **ROUNDING)
    covariance = falling.covariance
    assert covariance.shape == (15, 15)
    assert (numpy.linalg.eigvalsh(covariance) > 0).all()
    assert falling.row().shape == (194,)


def test_samples_are_interpolated():
    times = numpy.linspace(0, 1, 11)
    rates = numpy.outer(times, [0.1, 0.2, 0.3])
    forces = numpy.outer(1 + times, [1.0, 0.0, 9.0])
    of_samples = ceres_ext.Preintegration(**NOISE)
    of_samples.add_samples(times, rates, forces, 0.05, 0.25)
    of_steps = ceres_ext.Preintegration(**NOISE)
    for begin, end in [(0.05, 0.1), (0.1, 0.2), (0.2, 0.25)]:
        middle = (begin + end) / 2
        of_steps.add(
            end - begin,
            middle * numpy.array([0.1, 0.2, 0.3]),
            (1 + middle) * numpy.array([1.0, 0.0, 9.0]),
        )
    numpy.testing.assert_allclose(of_samples.row(), of_steps.row(), rtol=1e-9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda i: i.add(0.0, numpy.zeros(3), numpy.zeros(3)), "above 0"),
        (lambda i: i.add(0.1, numpy.zeros(2), numpy.zeros(3)), "gyroscope"),
        (lambda i: i.row(), "not positive definite"),
        (
            lambda i: i.add_samples(
                numpy.zeros(2), numpy.zeros((2, 3)), numpy.zeros((2, 3)), 0.0, 1.0
            ),
            "do not cover",
        ),
        (
            lambda i: i.add_samples(
                numpy.zeros(2), numpy.zeros((3, 3)), numpy.zeros((2, 3)), 0.0, 1.0
            ),
            "gyroscope",
        ),
    ],
)
def test_says_what_is_not_valid(call, words):
    with pytest.raises(ValueError, match=words):
        call(ceres_ext.Preintegration(**NOISE))


def test_inertial_errors():
    """A state that the increment predicts has no error, and others have that of
    the covariance."""
    force = numpy.array([0.3, -0.2, 9.9])
    bias = numpy.array([0.01, -0.02, 0.03, 0.1, 0.2, -0.1])
    increment = ceres_ext.Preintegration(**NOISE, bias=bias)
    for _ in range(20):
        increment.add(0.01, numpy.array([0.3, 0.1, -0.2]), force)
    t = increment.duration
    poses = make_poses("EIGEN_QUATERNION", N, 3)
    r = rotations(poses)
    velocities = make_points(seed=4)
    x, y, z, w = poses[:, :4].T
    a, b, c, d = increment.rotation
    product = numpy.stack(
        [
            w * a + x * d + y * c - z * b,
            w * b - x * c + y * d + z * a,
            w * c + x * b - y * a + z * d,
            w * d - x * a - y * b - z * c,
        ],
        axis=1,
    )
    places = poses[:, 4:] + velocities * t + GRAVITY * t**2 / 2 + r @ increment.position
    later = numpy.hstack([product, places])
    gained = velocities + GRAVITY * t + r @ increment.velocity
    biases = numpy.tile(bias, (N, 1))
    row = numpy.tile(increment.row(GRAVITY), (N, 1))
    change = numpy.array([1e-3, -2e-3, 3e-3, 1e-4, 2e-4, 3e-4, 1e-4, -2e-4, 3e-4])

    def whitened(by):
        arrays = [
            poses,
            numpy.hstack([velocities, biases]),
            numpy.hstack([later[:, :4], later[:, 4:] + r @ by[:3]]),
            numpy.hstack([gained + r @ by[3:6], biases + [*by[6:], 0, 0, 0]]),
        ]
        return residuals("InertialError", row, arrays)

    # Weights of 1e5 times rounding of values of 10.
    numpy.testing.assert_allclose(whitened(numpy.zeros(9)), 0, atol=1e-8)
    error = numpy.zeros(15)
    error[3:12] = change
    expected = error @ numpy.linalg.solve(increment.covariance, error)
    found = (whitened(change) ** 2).sum(axis=1)
    numpy.testing.assert_allclose(found, expected, rtol=1e-6)


def test_inverse_depths():
    generator = numpy.random.default_rng(5)
    anchor, frame, first, second = (
        make_poses("EIGEN_QUATERNION", N, seed) for seed in (3, 4, 5, 6)
    )
    measured = generator.uniform(-0.3, 0.3, (N, 8))
    weights = generator.uniform(1, 3, (N, 1))
    depths = generator.uniform(4, 8, (N, 1))
    offsets = generator.uniform(-0.01, 0.01, (N, 1))
    anchors = measured[:, :2] - offsets * measured[:, 2:4]
    rays = numpy.hstack([anchors, numpy.ones((N, 1))])
    observations = numpy.hstack([measured, weights])

    def expected(camera, with_frames):
        points = multiply(rotations(first), depths * rays) + first[:, 4:]
        if with_frames:
            points = multiply(rotations(anchor), points) + anchor[:, 4:]
            points = back(rotations(frame), points - frame[:, 4:])
        points = back(rotations(camera), points - camera[:, 4:])
        image = measured[:, 4:6] - offsets * measured[:, 6:]
        return weights * (points[:, :2] / points[:, 2:] - image)

    both = [first, second]
    for name, arrays, error in [
        ("InverseDepthError", [anchor, frame, first], expected(first, True)),
        ("StereoInverseDepthError", [anchor, frame, *both], expected(second, True)),
        ("AnchorStereoInverseDepthError", both, expected(second, False)),
    ]:
        found = residuals(name, observations, [*arrays, 1 / depths, offsets])
        numpy.testing.assert_allclose(found, error, **ROUNDING)


def covariances(n):
    root = numpy.random.default_rng(8).uniform(-1, 1, (N, n, n)) + 2 * numpy.eye(n)
    return root @ root.transpose(0, 2, 1)


@pytest.mark.parametrize("with_covariance", [False, True])
def test_rows_of_a_keyframe(with_covariance):
    poses = make_poses("EIGEN_QUATERNION", N, 3)
    r = rotations(poses)
    antennas, positions = make_points(seed=6), make_points(seed=7)
    speeds, measured = (make_points(3 * N, seed).reshape(N, 9) for seed in (8, 9))
    plane = numpy.array([1.0, 0, 0, 0, 1, 0, 0.1, 0.2, -0.3, 0, 0, 1, 0.5])
    height = (r @ plane[6:9] + poses[:, 4:])[:, 2] - 0.5
    tilts = r[:, 2, :2]
    for name, observations, arrays, error in [
        ("SpeedAndBiasPrior", measured, [speeds], speeds - measured),
        (
            "GnssPositionError",
            positions,
            [poses, antennas],
            positions - multiply(r, antennas) - poses[:, 4:],
        ),
        (
            "PlanarMotionError",
            numpy.tile(plane, (N, 1)),
            [poses],
            numpy.hstack([tilts, height[:, None]]),
        ),
    ]:
        if with_covariance:
            given = covariances(error.shape[1])
            found = residuals(name, observations, arrays, covariances=given)
            information = numpy.linalg.inv(given)
            squares = numpy.einsum("ni,nij,nj->n", error, information, error)
            numpy.testing.assert_allclose((found**2).sum(axis=1), squares, rtol=1e-10)
        else:
            found = residuals(name, observations, arrays)
            numpy.testing.assert_allclose(found, error, **ROUNDING)


def test_a_solve_finds_the_truth():
    """A body at rest that turns, from one known keyframe."""
    increment = turning(bias=numpy.zeros(6))
    # At rest sensors measure -g.
    resting = ceres_ext.Preintegration(**NOISE)
    for _ in range(10):
        resting.add(0.1, numpy.array([0, 0, 0.6]), -GRAVITY)
    assert resting.duration == pytest.approx(increment.duration)
    n = 5
    truth = numpy.zeros((n, 7))
    truth[:, 2] = numpy.sin(0.3 * numpy.arange(n))
    truth[:, 3] = numpy.cos(0.3 * numpy.arange(n))
    poses = truth.copy()
    poses[1:] += 0.1
    poses[:, :4] /= numpy.linalg.norm(poses[:, :4], axis=1, keepdims=True)
    speeds = numpy.zeros((n, 9))
    speeds[1:] += 0.05
    problem = ceres_ext.ArrayProblem()
    is_first = numpy.arange(n) == 0
    manifold = ceres_ext.ProductManifold(
        ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
    )
    pose = problem.add_parameters(poses, constant=is_first, manifold=manifold)
    speed = problem.add_parameters(speeds, constant=is_first)
    i = numpy.arange(n - 1, dtype=numpy.int32)
    problem.add_residuals(
        "InertialError",
        numpy.tile(resting.row(), (n - 1, 1)),
        [(pose, i), (speed, i), (pose, i + 1), (speed, i + 1)],
    )
    summary = ceres_ext.solve(
        problem,
        linear_solver_type="DENSE_SCHUR",
        function_tolerance=1e-14,
        gradient_tolerance=1e-14,
        parameter_tolerance=1e-14,
    )
    assert summary.final_cost < 1e-12
    # Weights of the noise above are 1e3 and more.
    numpy.testing.assert_allclose(poses, truth, atol=1e-8)
    numpy.testing.assert_allclose(speeds, 0, atol=1e-8)
