# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Refused input: the exception, its message, and that nothing is changed."""

import numpy
import pytest
from conftest import OPTIONS, make_problem

import ceres_ext

VALUES = numpy.zeros((4, 9))
READ_ONLY = numpy.zeros((4, 9))
READ_ONLY.flags.writeable = False
UNALIGNED = numpy.frombuffer(bytearray(4 * 72 + 1), offset=1).reshape(4, 9)
SWAPPED = VALUES.astype(">f8")
INDEX = numpy.zeros(5, numpy.int32)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"values": [[0.0] * 9]},
            TypeError,
            r"values: expected a numpy array of float64, or one on a CUDA device "
            r"\(torch, CuPy, JAX\), found list",
        ),
        (
            {"values": None},
            TypeError,
            "values: expected a numpy array of float64, or one on a CUDA .* NoneType",
        ),
        (
            {"values": VALUES.astype(numpy.float32)},
            TypeError,
            r"values: expected a numpy array of float64, found float32; array.astype\(numpy.float64\)",
        ),
        (
            {"values": SWAPPED},
            TypeError,
            "values: expected a numpy array of float64, found >f8",
        ),
        (
            {"values": VALUES[:, 0]},
            ValueError,
            r"values: expected an array of shape \(any, any\), found \(4,\)",
        ),
        ({"values": VALUES[:, :0]}, ValueError, "values: expected blocks of 1 to"),
        (
            {"values": VALUES[:, ::2]},
            ValueError,
            "values: expected a C-contiguous, aligned array",
        ),
        (
            {"values": numpy.asfortranarray(VALUES)},
            ValueError,
            "values: expected a C-contiguous",
        ),
        (
            {"values": UNALIGNED},
            ValueError,
            "values: expected a C-contiguous, aligned array",
        ),
        ({"values": READ_ONLY}, ValueError, "values: expected a writable array"),
        (
            {"constant": numpy.zeros(3, bool)},
            ValueError,
            r"constant: expected an array of shape \(4,\), found \(3,\)",
        ),
        (
            {"constant": numpy.zeros(4)},
            TypeError,
            "constant: expected a numpy array of bool, found float64",
        ),
        (
            {"constant": True},
            TypeError,
            "constant: expected a numpy array of bool, found bool",
        ),
        (
            {"lower": numpy.zeros(2)},
            ValueError,
            r"lower: expected an array of shape \(9,\), found \(2,\)",
        ),
        (
            {"upper": numpy.zeros((3, 9))},
            ValueError,
            r"upper: expected an array of shape \(4, 9\), found \(3, 9\)",
        ),
        (
            {"upper": [0.0, 1.0, 2.0]},
            TypeError,
            "upper: expected a numpy array of float64, found list",
        ),
        (
            {"manifold": "Sphere"},
            TypeError,
            "manifold: expected a manifold, a list of them, or None, found str",
        ),
        (
            {"manifold": [None] * 3},
            ValueError,
            "manifold: expected 4, one for each block, found 3",
        ),
        (
            {"manifold": [None, None, None, 1]},
            TypeError,
            r"manifold\[3\]: expected a manifold or None, found int",
        ),
    ],
)
def test_parameters(arguments, error, words):
    problem = ceres_ext.ArrayProblem()
    with pytest.raises(error, match=f"^{words}"):
        problem.add_parameters(**{"values": VALUES, **arguments})
    assert problem.add_parameters(VALUES) == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"cost_function": "Bal"},
            ValueError,
            "cost_function: expected one of BalReprojectionError, ",
        ),
        (
            {"observations": numpy.zeros((5, 3))},
            ValueError,
            r"observations: expected an array of shape \(any, 2\)",
        ),
        (
            {"observations": numpy.zeros((5, 4))[:, ::2]},
            ValueError,
            "observations: expected a C-contiguous",
        ),
        (
            {"observations": numpy.zeros((5, 2), int)},
            TypeError,
            "observations: expected a numpy array of float64",
        ),
        (
            {"blocks": 3},
            TypeError,
            r"blocks: expected a list of \(parameters, index\), found int",
        ),
        ({"blocks": [0, 1]}, TypeError, r"blocks\[0\]: expected \(parameters, index\)"),
        (
            {"blocks": [(0, INDEX), (None, INDEX)]},
            TypeError,
            r"blocks\[1\]: expected \(parameters, index\)",
        ),
        (
            {"blocks": [(0, INDEX.astype(numpy.int64)), (1, INDEX)]},
            TypeError,
            r"blocks\[0\]\[1\]: expected a numpy array of int32, found int64; array.astype\(numpy.int32\)",
        ),
        (
            {"blocks": [(0, INDEX), (1, INDEX[:4])]},
            ValueError,
            r"blocks\[1\]\[1\]: expected an array of shape \(5,\), found \(4,\)",
        ),
        (
            {"loss": "Huber"},
            TypeError,
            "loss: expected a loss function of this module, or None, found str",
        ),
        (
            {"weights": numpy.ones(4)},
            ValueError,
            r"weights: expected an array of shape \(5,\), found \(4,\)",
        ),
        (
            {"weights": 2.0},
            TypeError,
            "weights: expected a numpy array of float64, or one on a CUDA .* float",
        ),
    ],
)
def test_residuals(arguments, error, words):
    problem = ceres_ext.ArrayProblem()
    problem.add_parameters(VALUES)
    problem.add_parameters(numpy.zeros((2, 3)))
    good = {
        "cost_function": "BalReprojectionError",
        "observations": numpy.zeros((5, 2)),
        "blocks": [(0, INDEX), (1, INDEX)],
    }
    with pytest.raises(error, match=f"^{words}"):
        problem.add_residuals(**{**good, **arguments})
    problem.add_residuals(**good)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"iterations": 3}, TypeError, "iterations: unknown option"),
        (
            {"max_num_iterations": "3"},
            TypeError,
            "max_num_iterations: expected a value of type int, found '3'",
        ),
        (
            {"max_num_iterations": 2**31},
            TypeError,
            "max_num_iterations: expected a value of type int, found 2147483648",
        ),
        ({"eta": None}, TypeError, "eta: expected a value of type float, found None"),
        (
            {"enabled": 1},
            TypeError,
            "enabled: expected a value of type bool, found 1",
        ),
        (
            {"device": "GPU"},
            ValueError,
            "device: expected one of auto, host, cuda, found 'GPU'",
        ),
        (
            {"linear_solver_type": 5},
            TypeError,
            "linear_solver_type: expected a value of type str, found 5",
        ),
    ],
)
def test_options_of_their_own(bal, options, error, words):
    for call in (
        lambda: ceres_ext.SolverOptions(**options),
        lambda: setattr(ceres_ext.SolverOptions(), *next(iter(options.items()))),
        lambda: ceres_ext.solve(make_problem(bal), **options),
    ):
        with pytest.raises(error, match=f"^{words}"):
            call()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_threads": 0}, "num_threads = 0"),
        ({"eta": float("nan")}, "eta"),
        ({"linear_solver_type": "CGNR", "preconditioner_type": "SCHUR_JACOBI"}, "CGNR"),
        ({"cuda_device": -1}, "cuda_device"),
    ],
)
def test_options_that_do_not_fit(bal, options, words):
    with pytest.raises(ValueError, match=words):
        ceres_ext.solve(make_problem(bal), **options)


def test_callback_is_a_function(bal):
    with pytest.raises(TypeError, match="^callback: expected a function, found 3"):
        ceres_ext.solve(make_problem(bal), callback=3)


def out_of_range(bal):
    bal.camera_index[7] = 20


def negative(bal):
    bal.point_index[0] = -1


def not_finite(bal):
    bal.points[3, 1] = numpy.nan


def observation_not_finite(bal):
    bal.observations[9, 1] = numpy.inf


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            out_of_range,
            r"residuals 0, blocks\[0\]: block\[7\] is 20, expected 0 <= block < 20",
        ),
        (negative, r"residuals 0, blocks\[1\]: block\[0\] is -1"),
        (
            not_finite,
            "parameters 1: value 1 of block 3 is nan, expected a finite number",
        ),
        (observation_not_finite, "residuals 0: value 1 of observation 9 is inf"),
    ],
)
def test_what_arrays_hold(bal, tmp_path, spoil, words, capfd):
    problem = make_problem(bal)
    spoil(bal)
    cameras = bal.cameras.copy()
    with pytest.raises(ValueError, match=f"^{words}"):
        ceres_ext.solve(problem, **OPTIONS)
    assert numpy.array_equal(bal.cameras, cameras)
    with pytest.raises(ValueError, match=words):
        ceres_ext.write_bal(tmp_path / "spoilt.txt", bal)
    assert not list(tmp_path.iterdir())
    # A raised error is not printed too.
    assert capfd.readouterr() == ("", "")


def test_arrays_that_do_not_fit(bal):
    with pytest.raises(
        ValueError, match=r"expected parameters of shape \(any, 10\), camera, found"
    ):
        make_problem(bal, "BalQuaternionReprojectionError")
    problem = make_problem(bal, manifold=ceres_ext.QuaternionManifold())
    with pytest.raises(
        ValueError,
        match="parameters 0: its manifold has AmbientSize 4, expected the size 9",
    ):
        ceres_ext.solve(problem)
    problem = make_problem(bal._replace(points=bal.cameras.reshape(-1, 3)))
    with pytest.raises(ValueError, match="overlap in memory"):
        ceres_ext.solve(problem)
    problem = make_problem(bal._replace(camera_index=None))
    with pytest.raises(
        ValueError, match="block is null and parameters 0 has 20 blocks"
    ):
        ceres_ext.solve(problem)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: ceres_ext.HuberLoss(0.0),
            "HuberLoss: a: expected a finite number > 0, found 0.0",
        ),
        (lambda: ceres_ext.CauchyLoss(float("nan")), "CauchyLoss: a"),
        (lambda: ceres_ext.TukeyLoss(1e200), "TukeyLoss: a"),
        (
            lambda: ceres_ext.TolerantLoss(-1.0, 1.0),
            "TolerantLoss: expected finite a >= 0 and b > 0",
        ),
        (
            lambda: ceres_ext.TolerantLoss(1.0, 0.0),
            "TolerantLoss: expected finite a >= 0 and b > 0",
        ),
        (
            lambda: ceres_ext.ScaledLoss(None, -1.0),
            "ScaledLoss: a: expected a finite number >= 0",
        ),
        (
            lambda: ceres_ext.SphereManifold(1),
            "SphereManifold: size: expected at least 2, found 1",
        ),
        (
            lambda: ceres_ext.LineManifold(-3),
            "LineManifold: size: expected at least 2, found -3",
        ),
        (
            lambda: ceres_ext.EuclideanManifold(0),
            "EuclideanManifold: size: expected at least 1, found 0",
        ),
        (
            lambda: ceres_ext.SubsetManifold(0, []),
            "SubsetManifold: size: expected at least 1",
        ),
        (
            lambda: ceres_ext.SubsetManifold(3, [3]),
            "SubsetManifold: constant_parameters: expected different",
        ),
        (
            lambda: ceres_ext.SubsetManifold(3, [-1]),
            "SubsetManifold: constant_parameters: expected different",
        ),
        (
            lambda: ceres_ext.SubsetManifold(3, [1, 1]),
            "SubsetManifold: constant_parameters: expected different",
        ),
    ],
)
def test_losses_and_manifolds(make, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        make()


def test_losses_of_nothing():
    with pytest.raises(TypeError):
        ceres_ext.ComposedLoss(None, ceres_ext.TrivialLoss())


def test_files(bal, tmp_path):
    with pytest.raises(FileNotFoundError):
        ceres_ext.read_bal(tmp_path / "none.txt")
    with pytest.raises(IsADirectoryError):
        ceres_ext.read_bal(tmp_path)
    (tmp_path / "bad.txt").write_text("1 1 one\n")
    with pytest.raises(
        ValueError, match="bad.txt:1: expected the number of observations"
    ):
        ceres_ext.read_bal(tmp_path / "bad.txt")
    with pytest.raises(OSError, match="expected a file that can be written"):
        ceres_ext.write_bal(tmp_path / "none" / "out.txt", bal)
    with pytest.raises(TypeError, match="point_index: expected a numpy array of int32"):
        ceres_ext.write_bal(
            tmp_path / "out.txt", bal._replace(point_index=bal.point_index.tolist())
        )
