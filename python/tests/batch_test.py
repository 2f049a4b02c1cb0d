# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Batches of small problems, against solves one by one."""

import subprocess
import sys
import threading

import numpy
import pytest
from conftest import make_problem

import ceres_ext

OPTIONS = {
    "linear_solver": "AS_GIVEN",
    "linear_solver_type": "DENSE_SCHUR",
    "max_num_iterations": 8,
    "device": "HOST",
}


def copies(bal, n):
    """The problem n times, with other starts, as arrays and offsets."""
    random = numpy.random.default_rng(1)
    cameras = numpy.tile(bal.cameras, (n, 1))
    points = numpy.tile(bal.points, (n, 1))
    points += 1e-3 * random.standard_normal(points.shape)
    rows = len(bal.observations)
    which = numpy.repeat(numpy.arange(n, dtype=numpy.int32), rows)
    camera_index = numpy.tile(bal.camera_index, n) + which * len(bal.cameras)
    point_index = numpy.tile(bal.point_index, n) + which * len(bal.points)
    batch = bal._replace(
        cameras=cameras,
        points=points,
        camera_index=camera_index.astype(numpy.int32),
        point_index=point_index.astype(numpy.int32),
        observations=numpy.tile(bal.observations, (n, 1)),
    )
    begin = [
        numpy.arange(n + 1, dtype=numpy.int64) * len(part)
        for part in (bal.cameras, bal.points, bal.observations)
    ]
    return batch, begin[:2], begin[2:]


def test_as_one_by_one(bal):
    batch, parameter_begin, residual_begin = copies(bal, 3)
    starts = batch.points.copy()
    problem = make_problem(batch)
    summary = ceres_ext.solve_batch(problem, parameter_begin, residual_begin, **OPTIONS)
    assert len(summary.problems) == summary.num_windows == 3
    assert summary.device.startswith("host")
    assert summary.problems_per_second > 0
    assert 0 < summary.latency_percentile(50) <= summary.latency_percentile(99)
    assert "3 problems" in summary.brief_report()
    points = len(bal.points)
    for i, of_one in enumerate(summary.problems):
        one = bal._replace(
            cameras=bal.cameras.copy(),
            points=starts[i * points : (i + 1) * points].copy(),
        )
        expected = ceres_ext.solve(make_problem(one), **OPTIONS)
        assert of_one.solved_as == "window"
        assert of_one.is_solution_usable()
        assert of_one.termination_type == expected.termination_type
        assert of_one.num_successful_steps == expected.num_successful_steps
        assert of_one.final_cost == pytest.approx(expected.final_cost, rel=1e-6)


def test_bounds(bal):
    batch, parameter_begin, residual_begin = copies(bal, 3)
    starts = batch.points.copy()
    lower = bal.cameras - 1e-3 * (1 + numpy.abs(bal.cameras))
    upper = bal.cameras + 1e-3 * (1 + numpy.abs(bal.cameras))
    # The first problem has no bounds; of the last some cameras start outside.
    upper[0, 6] = bal.cameras[0, 6] - 1.0
    lower[0, 6] = upper[0, 6] - 2.0
    of_batch = numpy.tile(lower, (3, 1)), numpy.tile(upper, (3, 1))
    of_batch[0][: len(bal.cameras)] = -numpy.inf
    of_batch[1][: len(bal.cameras)] = numpy.inf
    summary = ceres_ext.solve_batch(
        make_problem(batch, lower=of_batch[0], upper=of_batch[1]),
        parameter_begin,
        residual_begin,
        **OPTIONS,
    )
    assert summary.num_windows == 3
    assert (batch.cameras >= of_batch[0]).all()
    assert (batch.cameras <= of_batch[1]).all()
    assert (batch.cameras[-len(bal.cameras) :] == upper).any()
    points = len(bal.points)
    for i, of_one in enumerate(summary.problems):
        one = bal._replace(
            cameras=bal.cameras.copy(),
            points=starts[i * points : (i + 1) * points].copy(),
        )
        bounds = {} if i == 0 else {"lower": lower, "upper": upper}
        expected = ceres_ext.solve(make_problem(one, **bounds), **OPTIONS)
        assert of_one.solved_as == "window"
        assert of_one.num_successful_steps == expected.num_successful_steps
        assert of_one.final_cost == pytest.approx(expected.final_cost, rel=1e-6)
    empty = of_batch[0].copy()
    empty[-1, 0] = of_batch[1][-1, 0]
    kept = batch.cameras[-1].copy()
    summary = ceres_ext.solve_batch(
        make_problem(batch, lower=empty, upper=of_batch[1]),
        parameter_begin,
        residual_begin,
        **OPTIONS,
    )
    assert "expected the first to be smaller" in summary.problems[2].message
    assert not summary.problems[2].is_solution_usable()
    assert summary.problems[1].is_solution_usable()
    assert (batch.cameras[-1] == kept).all()


def test_active(bal):
    batch, parameter_begin, residual_begin = copies(bal, 2)
    problem = make_problem(batch)
    active = numpy.ones(len(batch.observations), dtype=bool)
    active[::5] = False
    less = ceres_ext.solve_batch(
        problem,
        parameter_begin,
        residual_begin,
        max_num_iterations=0,
        residual_is_active=[active],
        device="HOST",
    )
    all_rows = ceres_ext.solve_batch(
        problem, parameter_begin, residual_begin, max_num_iterations=0, device="HOST"
    )
    for a, b in zip(less.problems, all_rows.problems):
        assert 0 < a.initial_cost < b.initial_cost


def test_window_solver(bal):
    batch, parameter_begin, residual_begin = copies(bal, 3)
    again = batch._replace(cameras=batch.cameras.copy(), points=batch.points.copy())
    one = bal._replace(cameras=bal.cameras.copy(), points=bal.points.copy())
    expected = ceres_ext.solve_batch(
        make_problem(batch), parameter_begin, residual_begin, **OPTIONS
    )
    solver = ceres_ext.WindowSolver(
        len(bal.cameras), len(bal.points), len(bal.observations), 3, **OPTIONS
    )
    assert solver.device.startswith("host")
    problem = make_problem(again)
    first = solver.submit(problem, parameter_begin, residual_begin)
    second = solver.submit(make_problem(one))
    with pytest.raises(ValueError, match="being solved"):
        ceres_ext.solve(problem)
    summary = solver.wait(first)
    assert (again.points == batch.points).all()
    assert [p.final_cost for p in summary.problems] == [
        p.final_cost for p in expected.problems
    ]
    while (summary := solver.poll(second)) is None:
        pass
    assert summary.problems[0].solved_as == "window"
    with pytest.raises(ValueError, match="ticket"):
        solver.wait(second)
    # A submission in flight ends with the solver.
    solver.submit(problem, parameter_begin, residual_begin)
    solver.stop()


def test_one_thread_per_ticket(bal):
    n = 20
    batch, parameter_begin, residual_begin = copies(bal, n)
    solver = ceres_ext.WindowSolver(
        len(bal.cameras), len(bal.points), len(bal.observations), n, **OPTIONS
    )
    ticket = solver.submit(make_problem(batch), parameter_begin, residual_begin)
    results = []
    barrier = threading.Barrier(4)

    def wait():
        barrier.wait()
        try:
            results.append(solver.wait(ticket))
        except ValueError as error:
            results.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (summary,) = (r for r in results if not isinstance(r, str))
    assert summary.num_windows == len(summary.problems) == n
    for refused in results:
        assert refused is summary or str(ticket) in refused
    # The memory is free for the next one.
    solver.wait(solver.submit(make_problem(batch), parameter_begin, residual_begin))


def mapper_problem(seed):
    """Images with SIMPLE_RADIAL cameras of their own, of which f and k vary."""
    random = numpy.random.default_rng(seed)
    images, points = 4, 40
    poses = numpy.zeros((images, 7))
    poses[:, :3] = 0.02 * random.standard_normal((images, 3))
    poses[:, 3] = 1.0
    poses[:, :4] /= numpy.linalg.norm(poses[:, :4], axis=1, keepdims=True)
    poses[:, 4] = 0.4 * numpy.arange(images)
    poses[:, 6] = 4.0
    cameras = numpy.tile([500.0, 320.0, 240.0, 0.01], (images, 1))
    xyz = random.uniform(-1.0, 1.0, (points, 3))
    image = numpy.repeat(numpy.arange(images, dtype=numpy.int32), points)
    point = numpy.tile(numpy.arange(points, dtype=numpy.int32), images)
    turn = 2.0 * numpy.cross(poses[image, :3], xyz[point])
    turned = xyz[point] + poses[image, 3:4] * turn
    turned += numpy.cross(poses[image, :3], turn)
    seen = turned + poses[image, 4:]
    seen = seen[:, :2] / seen[:, 2:]
    radial = 1.0 + cameras[image, 3:] * (seen**2).sum(axis=1, keepdims=True)
    pixels = cameras[image, :1] * radial * seen + cameras[image, 1:3]
    pixels += 0.5 * random.standard_normal(pixels.shape)
    cameras[:, 0] += 10.0 * random.standard_normal(images)
    poses[1:, 4:] += 0.02 * random.standard_normal((images - 1, 3))
    xyz += 0.05 * random.standard_normal(xyz.shape)
    return poses, cameras, xyz, image, point, pixels


def mapper_arrays(problems):
    """All of the problems as one ArrayProblem."""
    poses, cameras, xyz, image, point, pixels = (
        [part[k] for part in problems] for k in range(6)
    )
    image = [index + 4 * i for i, index in enumerate(image)]
    point = [index + 40 * i for i, index in enumerate(point)]
    problem = ceres_ext.ArrayProblem()
    constant = numpy.tile([True, False, False, False], len(problems))
    pose = ceres_ext.ProductManifold(
        ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
    )
    blocks = [
        problem.add_parameters(numpy.concatenate(xyz)),
        problem.add_parameters(
            numpy.concatenate(poses), constant=constant, manifold=pose
        ),
        problem.add_parameters(
            numpy.concatenate(cameras), manifold=ceres_ext.SubsetManifold(4, [1, 2])
        ),
    ]
    index = [numpy.concatenate(part).astype(numpy.int32) for part in (point, image)]
    problem.add_residuals(
        "ReprojectionError",
        numpy.concatenate(pixels),
        list(zip(blocks, [index[0], index[1], index[1]])),
        camera_model="SIMPLE_RADIAL",
    )
    return problem


def test_intrinsics_that_vary():
    problems = [mapper_problem(seed) for seed in range(3)]
    begin = numpy.arange(4, dtype=numpy.int64)
    summary = ceres_ext.solve_batch(
        mapper_arrays(problems), [40 * begin, 4 * begin, 4 * begin], [160 * begin], **OPTIONS
    )
    for i, of_one in enumerate(summary.problems):
        expected = ceres_ext.solve(mapper_arrays(problems[i : i + 1]), **OPTIONS)
        assert of_one.solved_as == "window", of_one.path_reason
        assert of_one.num_successful_steps == expected.num_successful_steps
        assert of_one.final_cost < 0.01 * of_one.initial_cost
        assert of_one.final_cost == pytest.approx(expected.final_cost, rel=1e-6)


def add_marginal_priors(problem, problems):
    """A prior of the second and the third pose of each problem. Returns the costs."""
    random = numpy.random.default_rng(7)
    n = len(problems)
    first = numpy.array([1, 2])
    references = numpy.stack([one[0][first] for one in problems])
    references[:, :, 4:] += 0.01 * random.standard_normal((n, 2, 3))
    a = 20.0 * random.standard_normal((n, 5, 12))
    b = random.standard_normal((n, 5))
    index = [
        (1, (4 * numpy.arange(n) + pose).astype(numpy.int32)) for pose in first
    ]
    weights = numpy.linspace(1.0, 2.0, n)
    problem.add_marginal_priors(references, a, b, index, weights=weights)
    d = numpy.zeros((n, 2, 6))
    d[:, :, 3:] = numpy.stack([one[0][first, 4:] for one in problems])
    d[:, :, 3:] -= references[:, :, 4:]
    r = numpy.einsum("kmc,kc->km", a, d.reshape(n, 12)) + b
    return 0.5 * weights * (r**2).sum(axis=1)


def test_marginal_priors():
    problems = [mapper_problem(seed) for seed in range(3)]
    begin = numpy.arange(4, dtype=numpy.int64)
    # Together they have one radius, so only the minimum is the same.
    options = dict(OPTIONS, max_num_iterations=50, function_tolerance=1e-12)
    parameter_begin = [40 * begin, 4 * begin, 4 * begin]
    without = ceres_ext.solve_batch(
        mapper_arrays(problems), parameter_begin, [160 * begin], **options
    )
    problem = mapper_arrays(problems)
    costs = add_marginal_priors(problem, problems)
    summary = ceres_ext.solve_batch(problem, parameter_begin, [160 * begin, begin], **options)
    for of_one, of_other, cost in zip(summary.problems, without.problems, costs):
        assert of_one.solved_as == "window", of_one.path_reason
        assert of_one.initial_cost == pytest.approx(of_other.initial_cost + cost)
    problem = mapper_arrays(problems)
    add_marginal_priors(problem, problems)
    expected = ceres_ext.solve(problem, **options)
    assert sum(of_one.final_cost for of_one in summary.problems) == pytest.approx(
        expected.final_cost, rel=1e-6
    )
    problem = mapper_arrays(problems)
    add_marginal_priors(problem, problems)
    solver = ceres_ext.WindowSolver(
        4, 40, 160, 3, num_marginal_poses=2, num_marginal_rows=5, **options
    )
    in_solver = solver.wait(solver.submit(problem, parameter_begin, [160 * begin, begin]))
    for of_one, of_other in zip(summary.problems, in_solver.problems):
        assert of_one.final_cost == of_other.final_cost
    solver = ceres_ext.WindowSolver(4, 40, 160, 3, **options)
    with pytest.raises(ValueError, match="2 poses of marginal priors, but the capacity is 0"):
        solver.submit(problem, parameter_begin, [160 * begin, begin])


def test_marginal_priors_refused():
    problem = mapper_arrays([mapper_problem(0)])
    references = numpy.tile([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0], (1, 2, 1))
    a, b = numpy.ones((1, 3, 12)), numpy.ones((1, 3))
    blocks = [(1, numpy.array([i], numpy.int32)) for i in (1, 2)]

    def refused(match, *arguments, **keywords):
        with pytest.raises(ValueError, match=match):
            problem.add_marginal_priors(*arguments, **keywords)

    refused("blocks: expected a pose or more", references, a, b, [])
    refused("references: .*2, 7", references[:, :1].copy(), a, b, blocks)
    refused("a: .*3, 12", references, a[:, :, :6].copy(), b, blocks)
    refused("b: ", references, a, numpy.ones((2, 3)), blocks)
    refused("expected parameters of shape", references, a, b, [(0, None), (1, None)])
    refused("rotation: expected one of", references, a, b, blocks, rotation="EULER")
    refused("of prior 0", numpy.zeros((1, 2, 7)), a, b, blocks)
    refused("of prior 0", references, numpy.inf * a, b, blocks)
    refused("weights", references, a, b, blocks, weights=numpy.ones(2))
    problem.add_marginal_priors(references, a, b, blocks)
    assert ceres_ext.solve(problem, **OPTIONS).is_solution_usable()


def test_marginalize():
    problems = [mapper_problem(seed) for seed in range(2)]
    begin = numpy.arange(3, dtype=numpy.int64)
    options = dict(OPTIONS, max_num_iterations=50, function_tolerance=1e-12)
    problem = mapper_arrays(problems)
    # The second image and all points, which it sees.
    image = numpy.tile([False, True, False, False], 2)
    dropped = [numpy.ones(80, bool), image, image]
    summary = ceres_ext.solve_batch(
        problem,
        [40 * begin, 4 * begin, 4 * begin],
        [160 * begin],
        parameter_is_dropped=dropped,
        **options,
    )
    assert len(summary.marginals) == 2
    for i, marginal in enumerate(summary.marginals):
        assert marginal.message == ""
        # Two poses, and f and k of three cameras.
        blocks = [(1, 2), (1, 3), (2, 0), (2, 2), (2, 3)]
        assert marginal.blocks == [(a, 4 * i + b) for a, b in blocks]
        assert marginal.num_rows == 160
        assert marginal.num_dropped_columns == marginal.dropped_rank == 40 * 3 + 6 + 2
        assert marginal.a.shape == (marginal.b.size, 2 * 6 + 3 * 2)
        assert marginal.references.size == 2 * 7 + 3 * 4
        # The linearised cost at the solution, the minimum over the points.
        cost = marginal.least_cost + 0.5 * (marginal.b**2).sum()
        assert cost == pytest.approx(summary.problems[i].final_cost, rel=1e-9)
    # At the solution, both problems as one.
    both = ceres_ext.marginalize(problem, dropped)
    assert both.a.shape == (
        sum(marginal.b.size for marginal in summary.marginals),
        sum(marginal.a.shape[1] for marginal in summary.marginals),
    )
    information = numpy.zeros_like(both.a.T @ both.a)
    order = [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
    place = {}
    column = 0
    for i, k in order:
        size = 6 if k < 2 else 2
        place[i, k] = numpy.arange(column, column + size)
        column += size
    for i, marginal in enumerate(summary.marginals):
        at = numpy.concatenate([place[i, k] for k in range(5)])
        information[numpy.ix_(at, at)] = marginal.a.T @ marginal.a
    difference = numpy.abs(both.a.T @ both.a - information)
    norms = numpy.sqrt(numpy.diag(information))
    assert (difference <= 1e-6 * numpy.outer(norms, norms)).all()
    # The prior by itself, added to a problem with the same arrays.
    rest = ceres_ext.ArrayProblem()
    poses = summary.marginals[0].references[:14].reshape(2, 7).copy()
    cameras = summary.marginals[0].references[14:].reshape(3, 4).copy()
    pose = ceres_ext.ProductManifold(
        ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
    )
    rest.add_parameters(poses, manifold=pose)
    rest.add_parameters(cameras, manifold=ceres_ext.SubsetManifold(4, [1, 2]))
    rest.add_marginal(summary.marginals[0], [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)])
    start = ceres_ext.evaluate(rest).cost
    assert start == pytest.approx(0.5 * (summary.marginals[0].b ** 2).sum())


def test_marginalize_refused():
    problem = mapper_arrays([mapper_problem(0)])
    nothing = [numpy.zeros(40, bool), None, None]
    marginal = ceres_ext.marginalize(problem, nothing)
    assert marginal.blocks == [] and marginal.a is None and marginal.num_rows == 0
    with pytest.raises(ValueError, match="expected one with a prior"):
        problem.add_marginal(marginal)
    with pytest.raises(ValueError, match="parameter_is_dropped: expected 3 arrays"):
        ceres_ext.marginalize(problem, nothing[:2])
    with pytest.raises(ValueError, match="0 < rank_tolerance < 1"):
        ceres_ext.marginalize(problem, nothing, rank_tolerance=0.0)
    points = [numpy.ones(40, bool), None, None]
    marginal = ceres_ext.marginalize(problem, points)
    assert len(marginal.blocks) == 7
    with pytest.raises(ValueError, match="blocks: expected 7, found 1"):
        problem.add_marginal(marginal, [(1, 0)])
    with pytest.raises(ValueError, match="expected 0 to 3, found 4"):
        problem.add_marginal(marginal, 3 * [(1, 4)] + 4 * [(2, 0)])
    with pytest.raises(ValueError, match="expected parameters of shape"):
        problem.add_marginal(marginal, 7 * [(1, 0)])


def test_stop(bal):
    batch, parameter_begin, residual_begin = copies(bal, 3)
    start = batch.points.copy()
    problem = make_problem(batch)
    stop = threading.Event()
    stop.set()
    summary = ceres_ext.solve_batch(
        problem, parameter_begin, residual_begin, stop=stop, **OPTIONS
    )
    for of_one in summary.problems:
        assert of_one.termination_type == "USER_FAILURE"
        assert "before it began" in of_one.message
    assert (batch.points == start).all()
    stop.clear()
    summary = ceres_ext.solve_batch(
        problem, parameter_begin, residual_begin, stop=stop, **OPTIONS
    )
    assert all(of_one.solved_as == "window" for of_one in summary.problems)
    with pytest.raises(TypeError, match="stop: expected a threading.Event"):
        ceres_ext.solve_batch(problem, parameter_begin, residual_begin, stop=3)


class StopsLater:
    """An event that is set when it is asked for the second time."""

    def __init__(self, error=None):
        self.num_calls = 0
        self.error = error

    def is_set(self):
        self.num_calls += 1
        if self.num_calls > 1 and self.error is not None:
            raise self.error
        return self.num_calls > 1


@pytest.mark.parametrize("error", [None, RuntimeError("of the event")])
def test_stop_in_flight(bal, error):
    # Takes seconds, and events are asked every 10 ms.
    batch, parameter_begin, residual_begin = copies(bal, 300)
    problem = make_problem(batch)
    stop = StopsLater(error)
    options = {**OPTIONS, "num_threads": 1, "max_num_iterations": 50}
    if error is not None:
        with pytest.raises(RuntimeError, match="of the event"):
            ceres_ext.solve_batch(
                problem, parameter_begin, residual_begin, stop=stop, **options
            )
        return
    summary = ceres_ext.solve_batch(
        problem, parameter_begin, residual_begin, stop=stop, **options
    )
    ends = [of_one.termination_type for of_one in summary.problems]
    assert "USER_SUCCESS" in ends or "USER_FAILURE" in ends
    assert stop.num_calls == 2


# A signal while a batch is solved that takes seconds.
INTERRUPTED = """
import os, signal, sys, threading, time
import ceres_ext, numpy
from batch_test import OPTIONS, copies
from conftest import make_problem

batch, parameter_begin, residual_begin = copies(ceres_ext.read_bal(sys.argv[1]), 300)
last = batch.points[parameter_begin[1][-2] :]
start = last.copy()
problem = make_problem(batch)
options = {**OPTIONS, "num_threads": 1, "max_num_iterations": 50}

def interrupt():
    time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    ceres_ext.solve_batch(problem, parameter_begin, residual_begin, **options)
except KeyboardInterrupt:
    print("interrupted")
# It ended before the last problem was solved.
assert (last == start).all()
# The problem is not in use any more.
summary = ceres_ext.solve_batch(
    problem, parameter_begin, residual_begin, **{**options, "max_num_iterations": 0}
)
assert summary.num_windows == 300
"""


def test_interrupt(bal_path, request):
    child = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(bal_path)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=request.path.parent,
    )
    assert (child.stdout, child.returncode) == ("interrupted\n", 0), child.stderr


def test_submission_sizes(bal):
    batch, parameter_begin, residual_begin = copies(bal, 3)
    start = batch.points.copy()
    solver = ceres_ext.WindowSolver(
        len(bal.cameras), len(bal.points), len(bal.observations), 3, **OPTIONS
    )
    rates = solver.measure_rates(
        make_problem(batch), parameter_begin, residual_begin, seconds=0.01
    )
    assert [n for n, _ in rates] == [1, 2, 3]
    assert all(rate > 0 for _, rate in rates)
    assert (batch.points == start).all()
    assert ceres_ext.choose_submission_size(rates, 0.0) == 1
    assert ceres_ext.choose_submission_size([(1, 22e3), (4, 56e3)], 50e3) == 4
    assert ceres_ext.choose_submission_size([], 1.0) == 0
    with pytest.raises(ValueError, match="seconds is"):
        solver.measure_rates(
            make_problem(batch), parameter_begin, residual_begin, seconds=-1.0
        )


def test_refusals(bal):
    batch, parameter_begin, residual_begin = copies(bal, 2)
    problem = make_problem(batch)
    with pytest.raises(ValueError, match="expected 2 arrays, found 1"):
        ceres_ext.solve_batch(problem, parameter_begin[:1], residual_begin)
    with pytest.raises(TypeError, match="parameter_begin: expected a list"):
        ceres_ext.solve_batch(problem, 3, residual_begin)
    with pytest.raises(TypeError, match="int64"):
        ceres_ext.solve_batch(
            problem, [b.astype(numpy.int32) for b in parameter_begin], residual_begin
        )
    with pytest.raises(ValueError, match="another problem's"):
        shifted = [parameter_begin[0] + numpy.array([0, 1, 0]), parameter_begin[1]]
        ceres_ext.solve_batch(problem, shifted, residual_begin)
    with pytest.raises(ValueError, match="num_cameras is 0"):
        ceres_ext.WindowSolver(0, 1, 1)
    solver = ceres_ext.WindowSolver(3, 1000, 10000, 2, **OPTIONS)
    with pytest.raises(ValueError, match="has 20 cameras, but the capacity is 3"):
        solver.submit(problem, parameter_begin, residual_begin)
