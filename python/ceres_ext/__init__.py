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

This refines bal.cameras and bal.points in place.
"""

from __future__ import annotations

import glob
import os
import sys
import typing

import numpy
import numpy.typing

from . import colmap
from ._ceres_ext import (
    ArctanLoss,
    ArrayProblem,
    BalCameraManifold,
    BatchSummary,
    BlockCovariance,
    CauchyLoss,
    CompiledCostFunction,
    ComposedLoss,
    EigenQuaternionManifold,
    EuclideanManifold,
    HuberLoss,
    IterationSummary,
    LineManifold,
    LossFunction,
    Manifold,
    Marginal,
    Preintegration,
    ProblemSummary,
    QuaternionManifold,
    ScaledLoss,
    SlidingWindow,
    SoftLOneLoss,
    SolverOptions,
    SphereManifold,
    SubsetManifold,
    Summary,
    TolerantLoss,
    TrivialLoss,
    TukeyLoss,
    WindowSolver,
    __version__,
    _covariance,
    _evaluate,
    _product_manifold,
    _read_bal,
    _set_cuda_library_folders,
    _write_bal,
    choose_submission_size,
    marginalize,
    solve,
    solve_batch,
)
from .communicator import Communicator, MpiCommunicator
from .compilation import CompilationError, compile_cost_function

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._ceres_ext import OptionValues

__all__ = [
    "ArctanLoss",
    "ArrayProblem",
    "BalCameraManifold",
    "BalProblem",
    "BatchSummary",
    "BlockCovariance",
    "CauchyLoss",
    "Communicator",
    "CompilationError",
    "CompiledCostFunction",
    "ComposedLoss",
    "Covariance",
    "EigenQuaternionManifold",
    "EuclideanManifold",
    "Evaluation",
    "HuberLoss",
    "IterationSummary",
    "LineManifold",
    "LossFunction",
    "Manifold",
    "Marginal",
    "MpiCommunicator",
    "Preintegration",
    "ProblemSummary",
    "ProductManifold",
    "QuaternionManifold",
    "SavedSummary",
    "ScaledLoss",
    "SlidingWindow",
    "SoftLOneLoss",
    "SolverOptions",
    "SphereManifold",
    "SubsetManifold",
    "Summary",
    "TolerantLoss",
    "TrivialLoss",
    "TukeyLoss",
    "WindowSolver",
    "__version__",
    "choose_submission_size",
    "colmap",
    "compile_cost_function",
    "covariance",
    "evaluate",
    "marginalize",
    "print_progress",
    "read_bal",
    "solve",
    "solve_batch",
    "write_bal",
]


# NVIDIA's packages, ceres-ext[exact] and ceres-ext[sparse].
_set_cuda_library_folders(
    [
        folder
        for entry in sys.path
        for folder in sorted(
            glob.glob(os.path.join(glob.escape(entry), "nvidia", "*", "lib"))
        )
    ]
)


class Evaluation(typing.NamedTuple):
    """The result of evaluate()."""

    cost: float
    """1/2 sum rho(|r|^2)"""
    residuals: list[numpy.typing.NDArray[numpy.float64]] | None
    """An array for each call of add_residuals, (n, residuals of a block)."""
    gradient: list[numpy.typing.NDArray[numpy.float64]] | None
    """An array for each call of add_parameters: (n, size), where size is that of
    the manifold's tangent, or (values,) if manifolds of an array differ in it.
    Zeros for blocks that are constant or in no residual block."""


def evaluate(
    problem: ArrayProblem,
    options: SolverOptions | None = None,
    *,
    apply_loss_function: bool = True,
    residuals: bool = True,
    gradient: bool = False,
    **values: Unpack[OptionValues],
) -> Evaluation:
    """Evaluates the problem at the values of its arrays, without solving it.

    options, values: as for solve(); only device, num_threads and precision have
    an effect.
    apply_loss_function: if False, losses and weights are not applied.

    ValueError: options or arrays do not fit together, or the problem is being
    solved. ArithmeticError: a residual block can't be evaluated, for example of a
    point at the optical centre of its camera.

        evaluation = ceres_ext.evaluate(problem, apply_loss_function=False)
        errors = numpy.linalg.norm(evaluation.residuals[0], axis=1)  # pixels
    """
    return Evaluation(
        *_evaluate(
            problem, options, apply_loss_function, residuals, gradient, **values
        )
    )


def ProductManifold(
    first: QuaternionManifold | EigenQuaternionManifold,
    second: SubsetManifold | EuclideanManifold,
) -> Manifold:
    """A quaternion and the values after it, as a camera of 10 values or a pose has
    them: with a SubsetManifold some of these are constant.

        pose = ProductManifold(EigenQuaternionManifold(), EuclideanManifold(3))
    """
    manifold = _product_manifold(first, second)
    # It is pickled by this.
    setattr(manifold, "_maker", (ProductManifold, (first, second)))
    return manifold


class SavedSummary:
    """A Summary, BatchSummary, ProblemSummary or IterationSummary that was pickled.

    It has the same attributes, and the same methods without arguments.
    """

    def __init__(self, values: dict[str, typing.Any], results: dict[str, object]):
        self._values = values
        self._results = results

    def __getattr__(self, name: str) -> typing.Any:
        if name.startswith("_"):  # while it is unpickled itself
            raise AttributeError(name)
        if name in self._results:
            return lambda: self._results[name]
        if name in self._values:
            return _restored(self._values[name])
        raise AttributeError(name)

    def to_dict(self) -> dict[str, typing.Any]:
        """All attributes by name, as plain values."""
        return self._values

    def __repr__(self) -> str:
        return f"<ceres_ext.SavedSummary: {self._results.get('brief_report', '')}>"


def _restored(value: typing.Any) -> typing.Any:
    if isinstance(value, dict):
        return SavedSummary(value, {})
    if isinstance(value, list):
        return [_restored(one) for one in value]
    return value


def print_progress(iteration: IterationSummary) -> None:
    """A callback that prints a line for each iteration, in a notebook too.

    ceres_ext.solve(problem, callback=ceres_ext.print_progress)
    """
    if iteration.iteration == 0:
        print("iter          cost   change    |step|    radius  linear   seconds")
    print(
        f"{iteration.iteration:4} {iteration.cost:13.6e} "
        f"{iteration.cost_change:8.1e} {iteration.step_norm:9.2e} "
        f"{iteration.trust_region_radius:9.2e} "
        f"{iteration.linear_solver_iterations:7} "
        f"{iteration.cumulative_time_in_seconds:9.3f}",
        flush=True,
    )


class Covariance(typing.NamedTuple):
    """The result of covariance()."""

    diagonals: list[numpy.typing.NDArray[numpy.float64]]
    """An array for each of `arrays`, (num_blocks, size, size). Zeros for constant
    blocks, NaN for blocks in no residual block."""
    pairs: list[numpy.typing.NDArray[numpy.float64]]
    """An array for each of `pairs`, (size of the first block, size of the
    second)."""
    device: str
    """The machine that computed it."""
    cost: float
    num_free_directions: int
    """Directions that no residual holds, which inner constraints take out."""
    redundancy: int
    variance_factor: float
    """The factor of all blocks."""
    smallest_eigenvalue: float
    """CovarianceSummary::smallest_eigenvalue of ceres_ext/covariance.h."""
    num_pcg_iterations: int
    """With PCG, of all solutions."""
    memory_bytes: int
    """The peak of device memory; 0 on the host and with PCG."""
    memory_forecast_bytes: int
    """The forecast of memory_bytes before the factorisation."""
    total_time_in_seconds: float


def covariance(
    problem: ArrayProblem,
    arrays: typing.Sequence[int] = (),
    pairs: typing.Sequence[tuple[tuple[int, int], tuple[int, int]]] = (),
    options: SolverOptions | None = None,
    *,
    apply_loss_function: bool = True,
    gauge: str = "as_given",
    scale: str = "a_priori",
    damping: typing.Sequence[float] = (),
    method: str = "auto",
    pcg_tolerance: float = 1e-10,
    **values: Unpack[OptionValues],
) -> Covariance:
    """Computes covariances at the values of the arrays, without solving.

    arrays: numbers that add_parameters returned; all their diagonal blocks are
    computed.
    pairs: pairs of blocks, each (array, number of the block).
    options, values: as for solve(); only device, num_threads and
    schur_factorization have an effect.
    gauge: as_given (free directions are an error), inner (inner constraints),
    damped. damping: with damped, D of all columns of all arrays.
    scale: a_priori, a_posteriori.
    method: auto, factorization, pcg, the last with relative residuals of
    pcg_tolerance. docs/covariance.md says what all this means.

    ValueError: options, arrays or pairs do not fit together, or the problem is
    being solved. ArithmeticError: there is no covariance; the message says why.

        found = ceres_ext.covariance(problem, [points], gauge="inner")
        sigmas = numpy.sqrt(numpy.diagonal(found.diagonals[0], axis1=1, axis2=2))
    """
    gauges = ["as_given", "inner", "damped"]
    scales = ["a_priori", "a_posteriori"]
    methods = ["auto", "factorization", "pcg"]
    for name, value, choices in (
        ("gauge", gauge, gauges),
        ("scale", scale, scales),
        ("method", method, methods),
    ):
        if value.lower() not in choices:
            raise ValueError(
                f"{name}: expected one of {', '.join(choices)}, found {value!r}"
            )
    diagonals, *rest = _covariance(
        problem,
        list(arrays),
        [(*first, *second) for first, second in pairs],
        options,
        apply_loss_function,
        gauges.index(gauge.lower()),
        scales.index(scale.lower()),
        list(damping),
        methods.index(method.lower()),
        pcg_tolerance,
        **values,
    )
    return Covariance(
        [blocks.reshape(-1, blocks.shape[1], blocks.shape[1]) for blocks in diagonals],
        *rest,
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

    The first bytes decide, not the name.

    OSError: the file can't be opened. ValueError: it holds something else; the
    message names the line, or the array of .npz, what was expected there and
    what was found.

        bal = ceres_ext.read_bal("problem-16-22106-pre.txt.bz2")
    """
    path = os.fspath(path)
    with open(path, "rb"):
        pass
    return BalProblem(*_read_bal(path))


def write_bal(path: str | os.PathLike[str], problem: BalProblem) -> None:
    """Writes a file that read_bal reads back with the same bits.

    A name that ends in .gz or .bz2 is compressed, one that ends in .npz holds
    arrays. The file is written completely or not at all, and a file that it
    replaces stays until then.

    TypeError, ValueError: the arrays are not a BAL problem. OSError: the file
    can't be written.

        ceres_ext.write_bal("refined.npz", bal)
    """
    _write_bal(os.fspath(path), *problem)
