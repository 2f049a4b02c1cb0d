# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Windows that slide, against arrays."""

import numpy
import pytest
from odometry_test import turning

import ceres_ext

OPTIONS = {"linear_solver_type": "DENSE_SCHUR", "device": "HOST"}
N = 4  # keyframes
# Offsets of one problem.
WHOLE = [numpy.array([0, n]) for n in (N, N, N - 1, 1)]


def pose_manifold():
    return ceres_ext.ProductManifold(
        ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
    )


def keyframes():
    """Poses and speeds near a path, and increments between them."""
    random = numpy.random.default_rng(3)
    increments = [turning(0.1 + 0.02 * i) for i in range(N - 1)]
    poses, speeds = [numpy.eye(7)[3]], [numpy.array([1.0, 0.5, 0.2, *(6 * [0.0])])]
    for increment in increments:
        pose, speed = increment.predict(poses[-1], speeds[-1])
        poses.append(pose)
        speeds.append(speed)
    disturbed = [speed + 0.01 * random.standard_normal(9) for speed in speeds]
    return poses, disturbed, increments


def make_window():
    window = ceres_ext.SlidingWindow(**OPTIONS)
    poses = window.add_block_kind(7, pose_manifold())
    speeds = window.add_block_kind(9)
    inertial = window.add_residual_kind("InertialError", [poses, speeds, poses, speeds])
    known = window.add_residual_kind("SpeedAndBiasPrior", [speeds])
    of_poses, of_speeds, increments = keyframes()
    # Numbers are the caller's.
    for k in range(N):
        window.add_block(poses, 10 * k, of_poses[k], constant=k == 0)
        window.add_block(speeds, 10 * k, of_speeds[k])
    numbers = numpy.array([[10 * k, 10 * k, 10 * k + 10, 10 * k + 10] for k in range(N - 1)])
    rows = numpy.array([increment.row() for increment in increments])
    window.add_residuals(inertial, rows, numbers)
    window.add_residuals(
        known, numpy.zeros((1, 9)), numpy.zeros((1, 1), int), covariances=1e-8 * numpy.eye(9)
    )
    return window, poses, speeds


def arrays_of(poses, speeds, increments):
    """The same problem on arrays, and the number of the speeds."""
    problem = ceres_ext.ArrayProblem()
    p = problem.add_parameters(
        poses, constant=numpy.arange(N) == 0, manifold=pose_manifold()
    )
    s = problem.add_parameters(speeds)
    i, j = (numpy.arange(k, N - 1 + k, dtype=numpy.int32) for k in (0, 1))
    problem.add_residuals(
        "InertialError",
        numpy.array([increment.row() for increment in increments]),
        [(p, i), (s, i), (p, j), (s, j)],
    )
    problem.add_residuals(
        "SpeedAndBiasPrior",
        numpy.zeros((1, 9)),
        [(s, numpy.zeros(1, numpy.int32))],
        covariances=1e-8 * numpy.eye(9),
    )
    return problem, s


def test_has_the_values_of_arrays():
    window, poses, speeds = make_window()
    summary = window.solve()
    assert summary.num_windows == 1 and len(summary.problems) == 1

    of_poses, of_speeds, increments = (numpy.array(part) for part in keyframes())
    problem, _ = arrays_of(of_poses, of_speeds, increments)
    expected = ceres_ext.solve_batch(problem, WHOLE[:2], WHOLE[2:], **OPTIONS)
    assert summary.problems[0].final_cost == expected.problems[0].final_cost
    for k in range(N):
        assert (window.values(poses, 10 * k) == of_poses[k]).all()
        assert (window.values(speeds, 10 * k) == of_speeds[k]).all()


def test_drops_and_cuts():
    window, poses, speeds = make_window()
    window.solve()
    solved = window.values(speeds, 30)
    window.drop(poses, 0)
    window.drop(speeds, 0)
    assert window.numbers(poses) == [0, 10, 20, 30]
    summary = window.solve()
    assert window.numbers(poses) == [10, 20, 30] and window.num_priors == 1
    assert window.num_residuals(0) == N - 2 and window.num_residuals(1) == 0
    assert summary.marginals[0].num_rows == 2
    # The prior has its minimum at the solution.
    window.solve()
    numpy.testing.assert_allclose(window.values(speeds, 30), solved, atol=1e-6)
    window.set_values(speeds, 30, solved + 0.01)
    window.solve()
    numpy.testing.assert_allclose(window.values(speeds, 30), solved, atol=1e-4)
    with pytest.raises(ValueError, match="dropped but not cut"):
        window.cut(poses, 10)
    window.cut_residuals(0, poses, 30)
    assert window.num_residuals(0) == N - 3
    window.cut(poses, 30)
    window.cut(speeds, 30)
    assert window.numbers(poses) == [10, 20]
    window.set_constant(poses, 10, True)
    window.solve()


def test_has_covariances():
    window, poses, speeds = make_window()
    for k in (10, 30):
        window.want_covariance(speeds, k)
    window.want_covariance(poses, 0)  # constant
    (found,) = window.solve().covariances
    assert found.message == "" and found.blocks == [(speeds, 10), (speeds, 30)]
    assert found.matrix.shape == (18, 18)
    assert (numpy.linalg.eigvalsh(found.matrix) > 0).all()

    _, _, increments = keyframes()
    problem, s = arrays_of(
        numpy.array([window.values(poses, 10 * k) for k in range(N)]),
        numpy.array([window.values(speeds, 10 * k) for k in range(N)]),
        increments,
    )
    # The same of solve_batch, and by another way. The prior is as tight as the
    # increments, so that rounding grows by a few digits alone.
    flags = [None, numpy.array([False, True, False, True])]
    same = ceres_ext.solve_batch(
        problem,
        WHOLE[:2],
        WHOLE[2:],
        covariance_is_wanted=flags,
        max_num_iterations=0,
        **OPTIONS,
    ).covariances[0]
    scale = numpy.sqrt(numpy.outer(numpy.diag(found.matrix), numpy.diag(found.matrix)))
    assert (abs(same.matrix - found.matrix) < 1e-9 * scale).all()
    pairs = [((s, 1), (s, 1)), ((s, 1), (s, 3)), ((s, 3), (s, 3))]
    other = ceres_ext.covariance(problem, [], pairs, device="HOST")
    for (a, b), block in zip([(0, 0), (0, 1), (1, 1)], other.pairs, strict=True):
        part = found.matrix[9 * a : 9 * a + 9, 9 * b : 9 * b + 9]
        assert (abs(part - block) < 1e-9 * scale[9 * a : 9 * a + 9, 9 * b : 9 * b + 9]).all()


def number(n):
    return numpy.full((1, 4), n)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda w: w.add_block_kind(0), "size is 0"),
        (lambda w: w.add_block_kind(9, pose_manifold()), "AmbientSize 7"),
        (lambda w: w.add_residual_kind("InertialError", [0, 1]), "expected 4"),
        (lambda w: w.add_residual_kind("InertialError", [0, 0, 0, 1]), "found 7"),
        (lambda w: w.add_residual_kind("InertialError", [0, 1, 0, 9]), "kind is 9"),
        (lambda w: w.add_residual_kind("Nothing", [0]), "cost_function"),
        (lambda w: w.add_block(7, 1, numpy.zeros(7)), "kind"),
        (lambda w: w.add_block(0, 1, numpy.zeros(6)), "values"),
        (lambda w: w.add_block(0, 10, numpy.zeros(7)), "is there already"),
        (lambda w: w.add_block(1, 5, numpy.full(9, numpy.nan)), "nan"),
        (lambda w: w.values(0, 5), "number 5"),
        (lambda w: w.set_values(0, 10, numpy.zeros(3)), "values"),
        (lambda w: w.set_constant(0, 5, True), "no block 5"),
        (lambda w: w.drop(0, 5), "no block 5"),
        (lambda w: w.cut(4, 5), "kind is 4"),
        (lambda w: w.cut_residuals(5, 0, 10), "is 5, expected"),
        (lambda w: w.add_residuals(9, numpy.zeros((1, 9)), number(0)), "kind"),
        (lambda w: w.add_residuals(0, numpy.zeros((1, 3)), number(0)), "observations"),
        (lambda w: w.add_residuals(0, numpy.ones((1, 194)), number(5)), "no block 5"),
        (
            lambda w: w.add_residuals(
                0, numpy.ones((1, 194)), number(0), weights=numpy.array([-1.0])
            ),
            "weights",
        ),
        (
            lambda w: w.add_residuals(
                0, numpy.ones((1, 194)), number(0), covariances=numpy.eye(15)
            ),
            "covariances",
        ),
    ],
)
def test_says_what_is_not_valid(call, words):
    window, poses, speeds = make_window()
    before = [window.numbers(kind) for kind in (poses, speeds)]
    with pytest.raises(ValueError, match=words):
        call(window)
    assert [window.numbers(kind) for kind in (poses, speeds)] == before
    assert window.num_residuals(0) == N - 1


def test_says_what_it_does_not_take():
    with pytest.raises(TypeError, match="manifold"):
        make_window()[0].add_block_kind(3, 1)
    with pytest.raises(TypeError, match="loss"):
        make_window()[0].add_residual_kind("SpeedAndBiasPrior", [1], loss=1)
    with pytest.raises(TypeError, match="no_such_option"):
        ceres_ext.SlidingWindow(no_such_option=1)
