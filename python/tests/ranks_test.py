# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Ranks that are threads, or processes of mpi4py, solve a problem together."""

import threading

import numpy
import pytest

import ceres_ext


class ThreadCommunicator(ceres_ext.Communicator):
    def __init__(self, rank, shared, barrier):
        self.rank = rank
        self.size = len(shared)
        self.shared = shared
        self.barrier = barrier
        self.num_calls = 0

    def all_gather(self, mine):
        self.num_calls += 1
        self.shared[self.rank] = mine
        self.barrier.wait(60)
        everything = list(self.shared)
        self.barrier.wait(60)
        return everything

    def abort(self, message):
        self.barrier.abort()


def communicators(size):
    shared = [b""] * size
    barrier = threading.Barrier(size)
    return [ThreadCommunicator(rank, shared, barrier) for rank in range(size)]


NUM_CAMERAS = 6
NUM_POINTS = 60


def start():
    random = numpy.random.default_rng(3)
    cameras = numpy.zeros((NUM_CAMERAS, 9))
    cameras[:, :3] = random.normal(0, 0.05, (NUM_CAMERAS, 3))
    cameras[:, 3:6] = random.normal(0, 0.3, (NUM_CAMERAS, 3)) + [0, 0, -5]
    cameras[:, 6] = 500
    points = random.uniform(-1, 1, (NUM_POINTS, 3))
    return cameras, points


def build(cameras, points, own, chosen):
    """The problem of these points, which all cameras see."""
    truth, of_points = start()
    camera = numpy.tile(numpy.arange(NUM_CAMERAS, dtype=numpy.int32), len(chosen))
    point = numpy.repeat(numpy.arange(len(chosen), dtype=numpy.int32), NUM_CAMERAS)
    x = truth[camera]
    # Small rotations.
    seen = of_points[chosen][point]
    seen = seen + numpy.cross(x[:, :3], seen) + x[:, 3:6]
    pixels = -500 * seen[:, :2] / seen[:, 2:]
    problem = ceres_ext.ArrayProblem()
    problem.add_residuals(
        "BalReprojectionError",
        pixels,
        [
            (problem.add_parameters(cameras), camera),
            (problem.add_parameters(points, own=own), point),
        ],
    )
    return problem


OPTIONS = {
    "linear_solver_type": "ITERATIVE_SCHUR",
    "preconditioner_type": "SCHUR_JACOBI",
    "preconditioner_blocks": "SINGLE",
    "device": "HOST",
    "num_threads": 1,
    "eta": 1e-12,
    "max_num_iterations": 6,
}


def solve_by(ranks, **options):
    cameras, points = start()
    parts = numpy.array_split(numpy.arange(NUM_POINTS), len(ranks))
    of_ranks = [(cameras.copy(), points[chosen].copy()) for chosen in parts]
    results = [None] * len(ranks)

    def run(rank):
        problem = build(*of_ranks[rank], True, parts[rank])
        try:
            results[rank] = ceres_ext.solve(
                problem, communicator=ranks[rank], **{**OPTIONS, **options}
            )
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(r,)) for r in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results, of_ranks


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_solve_as_one(size):
    cameras, points = start()
    alone = ceres_ext.solve(
        build(cameras, points, False, numpy.arange(NUM_POINTS)), **OPTIONS
    )
    ranks = communicators(size)
    results, of_ranks = solve_by(ranks)
    for summary, (of_rank, _) in zip(results, of_ranks, strict=True):
        assert summary.path == "FULL", summary.message
        assert f"{size} ranks solve" in summary.path_reason
        assert summary.num_residual_blocks == NUM_CAMERAS * NUM_POINTS
        # sqrt(eta) of the gain.
        assert abs(summary.final_cost - alone.final_cost) < 1e-6 * alone.initial_cost
        assert (of_rank == of_ranks[0][0]).all()
    assert ranks[0].num_calls > 10


def test_an_exception_ends_all():
    ranks = communicators(2)

    def fail(mine):
        raise OSError("the cable was cut")

    ranks[1].all_gather = fail
    results, of_ranks = solve_by(ranks)
    assert isinstance(results[1], OSError)
    assert isinstance(results[0], threading.BrokenBarrierError)
    assert (of_ranks[0][0] == start()[0]).all()


def test_what_is_no_communicator():
    problem = build(*start(), True, numpy.arange(NUM_POINTS))
    with pytest.raises(TypeError, match="expected a ceres_ext.Communicator, found 3"):
        ceres_ext.solve(problem, communicator=3, **OPTIONS)


def test_refusals_name_rank_and_field():
    results, _ = solve_by(communicators(2), linear_solver_type="DENSE_SCHUR")
    for summary in results:
        assert summary.termination_type == "FAILURE"
        assert "Rank 0: linear_solver_type DENSE_SCHUR is not" in summary.message


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (lambda c: setattr(c, "rank", 7), ValueError, "found rank 7 and size 1"),
        (lambda c: setattr(c, "size", "x"), TypeError, "expected numbers rank and"),
        (
            lambda c: setattr(c, "all_gather", lambda mine: []),
            ValueError,
            "expected 1 parts, one of each rank, found 0",
        ),
        (
            lambda c: setattr(c, "all_gather", lambda mine: [b"x"]),
            ValueError,
            "bytes of a rank, found 1",
        ),
    ],
)
def test_other_communicators_are_refused(change, error, sentence):
    (one,) = communicators(1)
    problem = build(*start(), True, numpy.arange(NUM_POINTS))
    change(one)
    with pytest.raises(error, match=sentence):
        ceres_ext.solve(problem, communicator=one, **OPTIONS)
