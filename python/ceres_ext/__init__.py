# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Bundle adjustment under Ceres Solver's trust-region loop, on numpy arrays.

    bal = ceres_ext.read_bal("problem-16-22106-pre.txt")
    problem = ceres_ext.ArrayProblem()
    cameras = problem.add_parameters(bal.cameras)
    points = problem.add_parameters(bal.points)
    problem.add_residuals(
        "BalReprojectionError",
        bal.observations,
        [(cameras, bal.camera_index), (points, bal.point_index)],
        loss=ceres_ext.HuberLoss(1.0),
    )
    summary = ceres_ext.solve(problem, preconditioner_type="SCHUR_JACOBI")

refines bal.cameras and bal.points where they are.
"""

import os
import typing

import numpy
import numpy.typing

from ._ceres_ext import (
    ArctanLoss,
    ArrayProblem,
    BalCameraManifold,
    CauchyLoss,
    ComposedLoss,
    EigenQuaternionManifold,
    EuclideanManifold,
    HuberLoss,
    IterationSummary,
    LineManifold,
    LossFunction,
    Manifold,
    ProductManifold,
    QuaternionManifold,
    ScaledLoss,
    SoftLOneLoss,
    SolverOptions,
    SphereManifold,
    SubsetManifold,
    Summary,
    TolerantLoss,
    TrivialLoss,
    TukeyLoss,
    __version__,
    _evaluate,
    _read_bal,
    _write_bal,
    solve,
)

__all__ = [
    "ArctanLoss",
    "ArrayProblem",
    "BalCameraManifold",
    "BalProblem",
    "CauchyLoss",
    "ComposedLoss",
    "EigenQuaternionManifold",
    "EuclideanManifold",
    "Evaluation",
    "HuberLoss",
    "IterationSummary",
    "LineManifold",
    "LossFunction",
    "Manifold",
    "ProductManifold",
    "QuaternionManifold",
    "ScaledLoss",
    "SoftLOneLoss",
    "SolverOptions",
    "SphereManifold",
    "SubsetManifold",
    "Summary",
    "TolerantLoss",
    "TrivialLoss",
    "TukeyLoss",
    "__version__",
    "evaluate",
    "read_bal",
    "solve",
    "write_bal",
]


class Evaluation(typing.NamedTuple):
    """What evaluate() has found."""

    cost: float
    """1/2 sum rho(|r|^2)"""
    residuals: list[numpy.typing.NDArray[numpy.float64]] | None
    """Of each call of add_residuals, (n, 2)."""
    gradient: list[numpy.typing.NDArray[numpy.float64]] | None
    """Of each call of add_parameters, (n, size), or the size of the manifold's
    tangent; (values,) where manifolds of an array differ in it. Zeros where a
    block is constant or in no residual block."""


def evaluate(
    problem: ArrayProblem,
    options: SolverOptions | None = None,
    *,
    apply_loss_function: bool = True,
    residuals: bool = True,
    gradient: bool = False,
    **values: object,
) -> Evaluation:
    """Evaluates the problem at the values of its arrays, without solving it.

    options, values: as of solve(), of which those that say where and with which
    threads have an effect: device, num_threads, precision.
    apply_loss_function: whether losses and weights count.

    ValueError: options or arrays do not fit together, or the problem is being
    solved. ArithmeticError: a residual block can't be evaluated, as that of a
    point at the optical centre of its camera.
    """
    return Evaluation(
        *_evaluate(
            problem, options, apply_loss_function, residuals, gradient, **values
        )
    )


class BalProblem(typing.NamedTuple):
    """A problem of Bundle Adjustment in the Large.

    Observation i says that camera camera_index[i] sees point point_index[i] at
    observations[i]. ArrayProblem.add_residuals has the model of a camera.
    """

    cameras: numpy.typing.NDArray[numpy.float64]
    """(num_cameras, 9): rotation vector, translation, focal length, k1, k2."""
    points: numpy.typing.NDArray[numpy.float64]
    """(num_points, 3)"""
    camera_index: numpy.typing.NDArray[numpy.int32]
    """(num_observations,)"""
    point_index: numpy.typing.NDArray[numpy.int32]
    """(num_observations,)"""
    observations: numpy.typing.NDArray[numpy.float64]
    """(num_observations, 2): x and y in pixels."""


def read_bal(path: str | os.PathLike[str]) -> BalProblem:
    """Reads a file in the format of BAL: text, gzip, bzip2 or .npz.

    The first bytes tell which, not the name.

    OSError: the file can't be opened. ValueError: it holds something else; the
    message names the line, or the array of .npz, what was expected there and
    what was found.
    """
    path = os.fspath(path)
    with open(path, "rb"):
        pass
    return BalProblem(*_read_bal(path))


def write_bal(path: str | os.PathLike[str], problem: BalProblem) -> None:
    """Writes a file that read_bal reads back with the same bits.

    A name that ends in .gz or .bz2 is compressed, one that ends in .npz holds
    arrays. The file is there as a whole or not at all, and what it replaces
    stays until then.

    TypeError, ValueError: the arrays are no such problem. OSError: the file
    can't be written.
    """
    _write_bal(os.fspath(path), *problem)
