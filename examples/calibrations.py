# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Calibrates many cameras in one call, each from views of a board, simulated.

python examples/calibrations.py [CAMERAS]
"""

import sys

import numpy

import ceres_ext

VIEWS, ROWS, COLUMNS, SQUARE = 12, 6, 8, 0.03  # of the board; m
NOISE = 0.2  # pixels
RANDOM = numpy.random.default_rng(1)


def turn(q, x):
    """Points turned by quaternions x, y, z, w."""
    v, w = q[..., None, :3], q[..., None, 3:]
    return x + 2 * numpy.cross(v, w * x + numpy.cross(v, x))


def project(params, poses, x):
    """COLMAP's camera RADIAL: f, cx, cy, k1, k2."""
    f, cx, cy, k1, k2 = (params[:, None, None, n] for n in range(5))
    x = turn(poses[..., :4], x) + poses[..., None, 4:]
    u, v = x[..., 0] / x[..., 2], x[..., 1] / x[..., 2]
    r = u**2 + v**2
    scale = f * (1 + k1 * r + k2 * r**2)
    return numpy.stack([scale * u + cx, scale * v + cy], axis=-1)


def simulate(n):
    """Cameras, poses of their views, and what they see of the board."""
    params = numpy.column_stack(
        [
            RANDOM.uniform(500, 900, n),
            320 + 10 * RANDOM.standard_normal(n),
            240 + 10 * RANDOM.standard_normal(n),
            RANDOM.uniform(-0.2, 0.1, n),
            RANDOM.uniform(-0.02, 0.02, n),
        ]
    )
    poses = numpy.zeros((n, VIEWS, 7))
    poses[..., :3] = RANDOM.uniform(-0.25, 0.25, (n, VIEWS, 3))
    poses[..., 3] = numpy.sqrt(1 - (poses[..., :3] ** 2).sum(axis=-1))
    poses[..., 4:6] = RANDOM.uniform(-0.05, 0.05, (n, VIEWS, 2))
    poses[..., 6] = RANDOM.uniform(0.3, 0.5, (n, VIEWS))
    y, x = numpy.mgrid[:ROWS, :COLUMNS]
    board = numpy.stack([x - (COLUMNS - 1) / 2, y - (ROWS - 1) / 2, 0 * x], axis=-1)
    board = SQUARE * board.reshape(-1, 3)
    seen = project(params, poses, board)
    return params, poses, board, seen + NOISE * RANDOM.standard_normal(seen.shape)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    truth, poses, board, seen = simulate(n)
    corners = len(board)
    # Starts: what a detector of the board knows roughly.
    params = numpy.tile([700.0, 320.0, 240.0, 0.0, 0.0], (n, 1))
    poses = poses.reshape(-1, 7)
    poses[:, :3] += 0.03 * RANDOM.standard_normal((len(poses), 3))
    poses[:, :4] /= numpy.linalg.norm(poses[:, :4], axis=1, keepdims=True)
    poses[:, 4:] += 0.01 * RANDOM.standard_normal((len(poses), 3))
    boards = numpy.tile(board, (n, 1))

    problem = ceres_ext.ArrayProblem()
    points = problem.add_parameters(boards, constant=numpy.ones(len(boards), bool))
    views = problem.add_parameters(
        poses,
        manifold=ceres_ext.ProductManifold(
            ceres_ext.EigenQuaternionManifold(), ceres_ext.EuclideanManifold(3)
        ),
    )
    cameras = problem.add_parameters(params)
    row = numpy.arange(n * VIEWS * corners, dtype=numpy.int32)
    view = row // corners
    camera = view // VIEWS
    problem.add_residuals(
        "ReprojectionError",
        seen.reshape(-1, 2),
        [(points, camera * corners + row % corners), (views, view), (cameras, camera)],
        camera_model="RADIAL",
    )
    one = numpy.arange(n + 1, dtype=numpy.int64)  # where each calibration begins
    summary = ceres_ext.solve_batch(
        problem,
        [one * corners, one * VIEWS, one],
        [one * VIEWS * corners],
        linear_solver_type="DENSE_SCHUR",
    )
    print(f"{n} calibrations, {n / summary.total_time_in_seconds:.0f} a second")
    print(f"{summary.num_windows} as windows, on {summary.device}")
    error = abs(params - truth)
    print(f"focal lengths: median error {numpy.median(error[:, 0]):.2f} pixels")
    print(f"centres: median error {numpy.median(error[:, 1:3]):.2f} pixels")
    cost = sum(of_one.final_cost for of_one in summary.problems)
    freedom = 2 * len(row) - n * (5 + 6 * VIEWS)
    print(f"cost / what the noise leaves: {cost / (NOISE**2 / 2 * freedom):.4f}")


main()
