# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The results of a solve, and the arrays that hold them."""

import gc
import subprocess
import threading
import weakref

import numpy
import pytest
from conftest import OPTIONS, PROGRAMS, make_problem

import ceres_ext


def adjusted(bal_path, iterations, flags):
    """The problem as bundle_adjuster solves it; .npz files hold all bits."""
    solved = bal_path.with_name("solved.npz")
    subprocess.run(
        [
            PROGRAMS / "bundle_adjuster",
            f"--input={bal_path}",
            f"--output={solved}",
            f"--num_iterations={iterations}",
            "--problem=arrays",
            "--preconditioner=schur_jacobi",
            "--device=host",
            *flags,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return ceres_ext.read_bal(solved)


def in_its_own_frame(bal):
    """A problem that bundle_adjuster solves in the frame of its file.

    It has no scale to normalise: most points are at zero, and no camera sees them.
    The start has no rotations, so that quaternions add no rounding.
    """
    random = numpy.random.default_rng(1)
    cameras = bal.cameras.copy()
    cameras[:, :3] = random.normal(0, 0.01, (len(cameras), 3))
    cameras[:, 3:6] = [0, 0, -5] + random.normal(0, 0.5, (len(cameras), 3))
    points = random.uniform(-1, 1, bal.points.shape)
    observations = projected(cameras[bal.camera_index], points[bal.point_index])
    observations += random.normal(0, 0.5, observations.shape)
    cameras[:, :3] = 0
    points += random.normal(0, 0.01, points.shape)
    points = numpy.concatenate([points, numpy.zeros((len(points) + 2, 3))])
    return bal._replace(cameras=cameras, points=points, observations=observations)


@pytest.mark.parametrize(
    ("flags", "cost_function", "loss", "manifold"),
    [
        ([], "BalReprojectionError", None, None),
        (["--robustify"], "BalReprojectionError", ceres_ext.HuberLoss(1.0), None),
        (
            ["--use_quaternions", "--use_manifolds"],
            "BalQuaternionReprojectionError",
            None,
            ceres_ext.BalCameraManifold(),
        ),
    ],
)
def test_has_the_bits_of_bundle_adjuster(
    bal, tmp_path, flags, cost_function, loss, manifold
):
    bal = in_its_own_frame(bal)
    ceres_ext.write_bal(tmp_path / "problem.npz", bal)
    before = bal.points.copy()
    is_quaternion = manifold is not None
    if is_quaternion:
        cameras = numpy.insert(bal.cameras, 0, 1, axis=1)
        bal = bal._replace(cameras=cameras)
    problem = make_problem(bal, cost_function, loss, manifold=manifold)
    summary = ceres_ext.solve(problem, max_num_iterations=7, **OPTIONS)
    assert (summary.path, summary.termination_type) == ("FULL", "NO_CONVERGENCE")
    expected = adjusted(tmp_path / "problem.npz", 7, flags)
    assert numpy.array_equal(bal.points, expected.points)
    assert not numpy.array_equal(bal.points, before)
    # The program turns quaternions into angle-axis vectors for its file.
    begin = 4 if is_quaternion else 0
    num_equal = 6 if is_quaternion else 9
    assert numpy.array_equal(bal.cameras[:, begin:], expected.cameras[:, -num_equal:])


def test_has_the_cost_of_every_processor(bal):
    """The costs are of x86-64; scripts/aarch64 --wheel runs this on 64-bit Arm."""
    for iterations, cost in [(4, 1367.8860090361015), (20, 1324.0292752628804)]:
        copy = bal._replace(cameras=bal.cameras.copy(), points=bal.points.copy())
        problem = make_problem(copy)
        summary = ceres_ext.solve(problem, max_num_iterations=iterations, **OPTIONS)
        assert summary.path == "FULL"
        assert summary.final_cost == pytest.approx(cost, rel=1e-12)


def costs(summary):
    return [iteration.cost for iteration in summary.iterations]


def test_summary(bal):
    summary = ceres_ext.solve(make_problem(bal), max_num_iterations=4, **OPTIONS)
    assert summary.is_solution_usable()
    assert [i.iteration for i in summary.iterations] == list(range(5))
    assert summary.initial_cost == summary.iterations[0].cost
    assert summary.final_cost == min(costs(summary)) < summary.initial_cost
    assert summary.num_pcg_iterations == sum(
        i.linear_solver_iterations for i in summary.iterations
    )
    assert summary.num_residual_blocks == 2000
    assert summary.num_parameters == bal.cameras.size + bal.points.size
    assert summary.linear_solver_type_used == "ITERATIVE_SCHUR"
    assert summary.device.startswith("host")
    assert "SCHUR_JACOBI" in summary.method
    assert "Ceres Ext" in summary.full_report()
    assert "path: FULL" in repr(summary)
    assert repr(summary.iterations[3]).startswith("<ceres_ext.IterationSummary 3: cost")


def test_default_linear_solver_is_of_this_library(bal):
    summary = ceres_ext.solve(make_problem(bal))
    assert (summary.path, summary.linear_solver_type_given) == (
        "FULL",
        "ITERATIVE_SCHUR",
    )


def test_options_object_and_keywords_are_the_same(bal, bal_path):
    options = ceres_ext.SolverOptions(max_num_iterations=9, **OPTIONS)
    options.max_num_iterations = 3
    options.device = "host"
    summary = ceres_ext.solve(make_problem(bal), options, max_num_iterations=2)
    assert len(summary.iterations) == 3
    assert options.max_num_iterations == 3
    again = ceres_ext.read_bal(bal_path)
    ceres_ext.solve(make_problem(again), max_num_iterations=2, **OPTIONS)
    assert numpy.array_equal(bal.points, again.points)


def test_constant_blocks_keep_their_bits(bal):
    before = bal.cameras.copy()
    constant = numpy.zeros(len(before), bool)
    constant[[0, 3]] = True
    ceres_ext.solve(
        make_problem(bal, constant=constant), max_num_iterations=3, **OPTIONS
    )
    assert numpy.array_equal((bal.cameras == before).all(axis=1), constant)


def test_a_manifold_for_each_block(bal):
    before = bal.cameras.copy()
    intrinsics = ceres_ext.SubsetManifold(9, [6, 7, 8])
    manifolds = [intrinsics if i % 2 else None for i in range(len(before))]
    problem = make_problem(bal, manifold=manifolds)
    del intrinsics, manifolds
    gc.collect()
    ceres_ext.solve(problem, max_num_iterations=3, **OPTIONS)
    kept = (bal.cameras == before).all(axis=0)
    assert not kept.any()
    assert (bal.cameras[1::2, 6:] == before[1::2, 6:]).all()
    assert (bal.cameras[0::2] != before[0::2]).any(axis=0).all()


def with_quaternions(bal):
    angles = numpy.linalg.norm(bal.cameras[:, :3], axis=1, keepdims=True)
    axes = bal.cameras[:, :3] / numpy.where(angles > 0, angles, 1)
    rotations = numpy.hstack([numpy.cos(angles / 2), numpy.sin(angles / 2) * axes])
    return bal._replace(cameras=numpy.hstack([rotations, bal.cameras[:, 3:]]))


def product(last):
    return ceres_ext.ProductManifold(ceres_ext.QuaternionManifold(), last)


@pytest.mark.parametrize(
    ("manifold", "tangent_size"),
    [
        (ceres_ext.BalCameraManifold(), 9),
        (product(ceres_ext.EuclideanManifold(6)), 9),
        (product(ceres_ext.SubsetManifold(6, [3, 4, 5])), 6),
    ],
)
def test_cameras_with_quaternions(bal, manifold, tangent_size):
    quaternions = with_quaternions(bal)
    before = quaternions.cameras.copy()
    start = ceres_ext.solve(make_problem(bal), max_num_iterations=0, **OPTIONS)
    problem = make_problem(
        quaternions, "BalQuaternionReprojectionError", manifold=manifold
    )
    summary = ceres_ext.solve(problem, max_num_iterations=5, **OPTIONS)
    assert (summary.path, manifold.ambient_size) == ("FULL", 10)
    assert manifold.tangent_size == tangent_size
    # The same residuals, up to the rounding of both models.
    assert summary.initial_cost == pytest.approx(start.initial_cost, rel=1e-9)
    assert summary.final_cost < 0.5 * summary.initial_cost
    # Five products of unit quaternions: some ten roundings each.
    norms = numpy.linalg.norm(quaternions.cameras[:, :4], axis=1)
    assert numpy.abs(norms - 1).max() < 5 * 10 * 2**-53
    assert ((quaternions.cameras == before).all(axis=0)).sum() == 9 - tangent_size


def test_weights_scale_the_cost(bal):
    summary = ceres_ext.solve(
        make_problem(bal, weights=numpy.full(2000, 2.0)),
        max_num_iterations=0,
        **OPTIONS,
    )
    plain = ceres_ext.solve(make_problem(bal), max_num_iterations=0, **OPTIONS)
    # Sums of 4000 squares, in two orders.
    assert summary.initial_cost == pytest.approx(
        2 * plain.initial_cost, rel=4000 * 2**-53
    )
    assert "all residual blocks" in summary.path_reason


S = 5.0
LOSSES = {
    # rho(5) and rho'(5), by hand.
    "trivial": (ceres_ext.TrivialLoss(), S, 1),
    "huber": (ceres_ext.HuberLoss(2), 4 * S**0.5 - 4, 2 / S**0.5),
    "soft_l_one": (ceres_ext.SoftLOneLoss(2), 8 * (2.25**0.5 - 1), 1 / 1.5),
    "cauchy": (ceres_ext.CauchyLoss(2), 4 * numpy.log(2.25), 1 / 2.25),
    "arctan": (ceres_ext.ArctanLoss(2), 2 * numpy.arctan(2.5), 1 / 7.25),
    "tolerant": (
        ceres_ext.TolerantLoss(3, 2),
        2 * (numpy.log1p(numpy.e) - numpy.log1p(numpy.exp(-1.5))),
        1 / (1 + numpy.exp(-1)),
    ),
    "tukey": (ceres_ext.TukeyLoss(3), 3 * (1 - (4 / 9) ** 3), (4 / 9) ** 2),
    "tukey_beyond": (ceres_ext.TukeyLoss(2), 4 / 3, 0),
    "composed": (
        ceres_ext.ComposedLoss(ceres_ext.HuberLoss(1), ceres_ext.CauchyLoss(2)),
        2 * (4 * numpy.log(2.25)) ** 0.5 - 1,
        1 / (4 * numpy.log(2.25)) ** 0.5 / 2.25,
    ),
    "scaled": (
        ceres_ext.ScaledLoss(ceres_ext.HuberLoss(2), 3),
        12 * S**0.5 - 12,
        6 / S**0.5,
    ),
    "scaled_none": (ceres_ext.ScaledLoss(None, 3), 3 * S, 3),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(bal, name):
    loss, rho, derivative = LOSSES[name]
    gc.collect()  # the losses inside of others are theirs
    # Some ten roundings each.
    assert loss.evaluate(S)[:2] == pytest.approx((rho, derivative), rel=10 * 2**-52)
    summary = ceres_ext.solve(
        make_problem(bal, loss=loss), max_num_iterations=1, **OPTIONS
    )
    assert summary.path == "FULL"
    # At the residuals of the start, the cost is the sum of rho.
    options = {"max_num_iterations": 0, **OPTIONS}
    one = bal._replace(
        camera_index=bal.camera_index[:1].copy(),
        point_index=bal.point_index[:1].copy(),
        observations=bal.observations[:1].copy(),
    )
    squared = 2 * ceres_ext.solve(make_problem(one), **options).initial_cost
    cost = ceres_ext.solve(make_problem(one, loss=loss), **options).initial_cost
    assert cost == pytest.approx(0.5 * loss.evaluate(squared)[0], rel=100 * 2**-52)


def projected(cameras, points):
    """BAL's model in numpy, for small rotations given as matrices by Rodrigues."""
    w = cameras[:, :3]
    theta = numpy.linalg.norm(w, axis=1, keepdims=True)
    k = w / theta
    rotated = (
        points * numpy.cos(theta)
        + numpy.cross(k, points) * numpy.sin(theta)
        + k * numpy.sum(k * points, axis=1, keepdims=True) * (1 - numpy.cos(theta))
    )
    moved = rotated + cameras[:, 3:6]
    p = -moved[:, :2] / moved[:, 2:]
    r2 = numpy.sum(p * p, axis=1, keepdims=True)
    f, k1, k2 = (cameras[:, i : i + 1] for i in (6, 7, 8))
    return f * (1 + k1 * r2 + k2 * r2 * r2) * p


def test_evaluate(bal, capfd):
    weights = numpy.linspace(0.5, 2.0, 2000)
    problem = make_problem(bal, weights=weights)
    before = [bal.cameras.copy(), bal.points.copy()]
    found = ceres_ext.evaluate(problem, gradient=True, device="HOST")
    assert capfd.readouterr() == ("", "")
    assert numpy.array_equal(bal.cameras, before[0])
    assert numpy.array_equal(bal.points, before[1])

    def residuals():
        return (
            projected(bal.cameras[bal.camera_index], bal.points[bal.point_index])
            - bal.observations
        )

    def cost():
        return 0.5 * numpy.sum(weights * numpy.sum(residuals() ** 2, axis=1))

    # Coordinates of some 1e3 pixels after some hundred roundings.
    expected = residuals() * weights[:, None] ** 0.5
    assert found.residuals[0] == pytest.approx(expected, abs=1e3 * 100 * 2**-52)
    assert found.cost == pytest.approx(cost(), rel=1e-10)
    plain = ceres_ext.evaluate(problem, apply_loss_function=False, device="HOST")
    assert plain.gradient is None
    assert plain.residuals[0] == pytest.approx(residuals(), abs=1e3 * 100 * 2**-52)
    assert plain.cost == pytest.approx(0.5 * numpy.sum(residuals() ** 2), rel=1e-10)
    # Central differences, whose error is that of rounding the cost.
    for array, gradient in zip((bal.cameras, bal.points), found.gradient, strict=True):
        assert gradient.shape == array.shape
        for place in [(0, 0), (3, 1), (7, 2)]:
            value = array[place]
            h = 1e-6 * max(1.0, abs(value))
            array[place] = value + h
            more = cost()
            array[place] = value - h
            difference = (more - cost()) / (2 * h)
            array[place] = value
            assert gradient[place] == pytest.approx(
                difference, rel=1e-5, abs=4 * cost() * 4000 * 2**-53 / h
            )


def test_evaluate_with_manifolds_and_constants(bal):
    constant = numpy.zeros(20, bool)
    constant[4] = True
    manifold = ceres_ext.SubsetManifold(9, [6, 7, 8])
    found = ceres_ext.evaluate(
        make_problem(bal, constant=constant, manifold=manifold),
        residuals=False,
        gradient=True,
        device="HOST",
    )
    plain = ceres_ext.evaluate(make_problem(bal), gradient=True, device="HOST")
    assert found.residuals is None
    assert found.cost == pytest.approx(plain.cost, rel=4000 * 2**-53)
    expected = plain.gradient[0][:, :6].copy()
    expected[4] = 0
    assert found.gradient[0] == pytest.approx(expected, rel=1e-9)
    assert found.gradient[1] == pytest.approx(plain.gradient[1], rel=1e-9)


def test_evaluate_says_what_is_wrong(bal, capfd):
    bal.point_index[5] = 500
    with pytest.raises(ValueError, match="500"):
        ceres_ext.evaluate(make_problem(bal))
    bal.point_index[5] = 1
    # The point is at the camera's centre: R X + t = 0.
    bal.cameras[:, :6] = 0
    bal.points[1] = 0
    with pytest.raises(ArithmeticError, match="residual block"):
        ceres_ext.evaluate(make_problem(bal), device="HOST")
    assert capfd.readouterr() == ("", "")


def test_arrays_live_as_long_as_the_problem(bal_path):
    expected = ceres_ext.read_bal(bal_path)
    ceres_ext.solve(make_problem(expected), max_num_iterations=3, **OPTIONS)
    bal = ceres_ext.read_bal(bal_path)
    arrays = [weakref.ref(array) for array in bal]
    points = bal.points
    loss = ceres_ext.TrivialLoss()
    problem = make_problem(bal, loss=loss)
    del bal, loss
    gc.collect()
    # These would overwrite freed memory.
    filled = [
        numpy.full(array().shape, numpy.nan) for array in arrays for _ in range(3)
    ]
    ceres_ext.solve(problem, max_num_iterations=3, **OPTIONS)
    assert numpy.array_equal(points, expected.points)
    del problem, points, filled
    gc.collect()
    assert [array() for array in arrays] == [None] * 5


def test_solves_at_once_have_the_same_bits(bal_path):
    def solve(results, i):
        bal = ceres_ext.read_bal(bal_path)
        ceres_ext.solve(make_problem(bal), max_num_iterations=10, **OPTIONS)
        results[i] = bal.points

    results = [None] * 4
    threads = [threading.Thread(target=solve, args=(results, i)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for points in results[1:]:
        assert numpy.array_equal(points, results[0])


def test_failure_is_no_exception(bal):
    before = bal.points.copy()
    options = {"linear_solver_type": "DENSE_QR", "fallback": "REFUSE"}
    summary = ceres_ext.solve(make_problem(bal), **options)
    assert (summary.termination_type, summary.is_solution_usable()) == (
        "FAILURE",
        False,
    )
    assert "DENSE_QR" in summary.message
    # A point in the optical centre, where there is no residual.
    bal.cameras[:] = 0
    bal.points[:] = 0
    summary = ceres_ext.solve(make_problem(bal), **OPTIONS)
    assert summary.termination_type == "FAILURE"
    assert not bal.points.any() and before.any()


def test_bal_files(bal, tmp_path):
    for name in ["problem.txt", "problem.txt.gz"]:
        ceres_ext.write_bal(tmp_path / name, bal)
        again = ceres_ext.read_bal(str(tmp_path / name))
        for written, read in zip(bal, again, strict=True):
            assert numpy.array_equal(written, read)
            assert (written.dtype, written.shape) == (read.dtype, read.shape)


@pytest.mark.parametrize("of_each", [False, True])
def test_bounds(bal, of_each):
    """Focal lengths end within their bounds, some of them on one."""
    lower = numpy.full(9, -numpy.inf)
    upper = numpy.full(9, numpy.inf)
    lower[6] = numpy.median(bal.cameras[:, 6])
    upper[6] = lower[6] + 1e-3 * abs(lower[6])
    if of_each:
        lower = numpy.tile(lower, (len(bal.cameras), 1))
        upper = numpy.tile(upper, (len(bal.cameras), 1))
    problem = make_problem(bal, lower=lower, upper=upper)
    summary = ceres_ext.solve(problem, **OPTIONS)
    assert summary.path == "FULL"
    focal = bal.cameras[:, 6]
    low, high = numpy.min(lower[..., 6]), numpy.max(upper[..., 6])
    assert numpy.all((focal >= low) & (focal <= high))
    assert numpy.any((focal == low) | (focal == high))


def test_an_empty_interval_is_refused(bal):
    before = bal.cameras.copy()
    problem = make_problem(bal, lower=numpy.zeros(9), upper=numpy.zeros(9))
    words = "has the bounds 0 and 0, expected the first to be smaller"
    with pytest.raises(ValueError, match=words):
        ceres_ext.solve(problem, **OPTIONS)
    assert numpy.array_equal(bal.cameras, before)
