# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Solves a BAL file on arrays of numpy, removes outliers and solves again.

python examples/arrays.py PROBLEM
"""

import sys

import numpy

import ceres_ext


def solve(bal, keep):
    """Refines bal.cameras and bal.points where they are, by the observations kept."""
    problem = ceres_ext.ArrayProblem()
    cameras = problem.add_parameters(bal.cameras)
    points = problem.add_parameters(bal.points)
    problem.add_residuals(
        "BalReprojectionError",
        bal.observations[keep],
        [(cameras, bal.camera_index[keep]), (points, bal.point_index[keep])],
        loss=ceres_ext.HuberLoss(1.0),
    )
    summary = ceres_ext.solve(
        problem, preconditioner_type="SCHUR_JACOBI", max_num_iterations=50
    )
    print(summary.brief_report())
    return problem


def main():
    bal = ceres_ext.read_bal(sys.argv[1])
    keep = numpy.ones(len(bal.observations), bool)
    problem = solve(bal, keep)
    # Residuals of each add_residuals, without the loss.
    result = ceres_ext.evaluate(problem, apply_loss_function=False)
    errors = numpy.linalg.norm(result.residuals[0], axis=1)
    print(f"median error {numpy.median(errors):.3f} pixels")

    keep = errors < 5.0 * numpy.median(errors)
    print(f"{numpy.count_nonzero(~keep)} of {len(keep)} observations removed")
    problem = solve(bal, keep)
    errors = ceres_ext.evaluate(problem, apply_loss_function=False).residuals[0]
    rms = numpy.sqrt(numpy.mean(numpy.sum(errors**2, axis=1)))
    print(f"root of the mean squared error {rms:.3f} pixels")


main()
