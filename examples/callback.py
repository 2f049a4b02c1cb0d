# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Follows a solve and ends it when a step gains less than a thousandth.

python examples/callback.py PROBLEM
"""

import sys

import ceres_ext


class Follow:
    """Prints each iteration; False ends the solve."""

    def __init__(self):
        self.last = None

    def __call__(self, iteration):
        print(f"iteration {iteration.iteration}: cost {iteration.cost:.6e}")
        is_slow = (
            self.last is not None
            and iteration.step_is_successful
            and self.last - iteration.cost < 1e-3 * self.last
        )
        self.last = iteration.cost
        return not is_slow


def main():
    bal = ceres_ext.read_bal(sys.argv[1])
    problem = ceres_ext.ArrayProblem()
    cameras = problem.add_parameters(bal.cameras)
    points = problem.add_parameters(bal.points)
    problem.add_residuals(
        "BalReprojectionError",
        bal.observations,
        [(cameras, bal.camera_index), (points, bal.point_index)],
    )
    summary = ceres_ext.solve(
        problem,
        preconditioner_type="SCHUR_JACOBI",
        max_num_iterations=100,
        callback=Follow(),
    )
    print(f"{summary.termination_type} after {len(summary.iterations) - 1} iterations")


main()
