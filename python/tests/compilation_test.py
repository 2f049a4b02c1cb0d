# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Cost functions that users compile."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest
from conftest import OPTIONS, make_problem

import ceres_ext
from ceres_ext import compilation

HAS_COMPILER = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler")

# The camera of BAL, as in Ceres's examples.
BAL = """
#include "ceres/rotation.h"
struct SnavelyError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(camera, point, p);
    for (int i = 0; i < 3; ++i) {
      p[i] += camera[3 + i];
    }
    const T xp = -p[0] / p[2];
    const T yp = -p[1] / p[2];
    const T r2 = xp * xp + yp * yp;
    const T scale = camera[6] * (1.0 + r2 * (camera[7] + camera[8] * r2));
    residuals[0] = scale * xp - x;
    residuals[1] = scale * yp - y;
    return true;
  }
  double x, y;
};
"""
DISTANCE = """
struct Distance {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a, const T* b, T* residuals) const {
    using std::sqrt;
    T squared(0.0);
    for (int i = 0; i < 3; ++i) {
      squared += (a[i] - b[i]) * (a[i] - b[i]);
    }
    residuals[0] = (sqrt(squared) - measured) / sigma;
    return squared > 0.0;
  }
  double measured;
  double sigma;
};
"""
# Without data, and a block that is not used in full.
SMALL = """
struct Small {
  template <typename T>
  bool operator()(const T* camera, T* residuals) const {
    residuals[0] = 10.0 * camera[7];
    residuals[1] = 100.0 * camera[8];
    return true;
  }
};
"""


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """A cache of its own, which all tests share."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "ceres_ext"


def compiled(source, *arguments, device=False):
    return ceres_ext.compile_cost_function(source, *arguments, device=device)


def bal_model():
    return compiled(BAL, "SnavelyError", 2, [9, 3])


def test_what_it_says():
    model = bal_model()
    assert model.functor == "SnavelyError"
    assert (model.num_residuals, model.block_sizes, model.num_data) == (2, [9, 3], 2)
    assert not model.has_device_form
    assert model.host_only_reason == "device is False"
    assert repr(model) == "<ceres_ext.CompiledCostFunction SnavelyError, 2, 9, 3>"
    assert compiled(SMALL, "Small", 2, [9]).num_data == 0


@pytest.mark.parametrize("loss", [None, ceres_ext.HuberLoss(1.0), ceres_ext.TukeyLoss(5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_as_bal(bal, loss, weighted):
    """The same cost, gradient and solution as BalReprojectionError."""
    generator = numpy.random.default_rng(1)
    weights = generator.uniform(0.5, 2, len(bal.observations)) if weighted else None
    evaluations, solved = [], []
    for cost_function in ("BalReprojectionError", bal_model()):
        copy = bal._replace(cameras=bal.cameras.copy(), points=bal.points.copy())
        problem = make_problem(copy, cost_function, loss=loss, weights=weights)
        evaluations.append(ceres_ext.evaluate(problem, gradient=True, device="HOST"))
        summary = ceres_ext.solve(problem, max_num_iterations=3, **OPTIONS)
        assert summary.path == "FULL", summary.path_reason
        solved.append((summary.final_cost, copy))
    named, own = evaluations
    assert own.cost == pytest.approx(named.cost, rel=1e-12)
    # Pixels and their derivatives, up to 1e3 and 1e4, in rounding of both.
    numpy.testing.assert_allclose(own.residuals[0], named.residuals[0], atol=1e-10)
    for a, b in zip(own.gradient, named.gradient, strict=True):
        numpy.testing.assert_allclose(a, b, atol=1e-11 * numpy.abs(b).max())
    # Three steps by PCG to eta = 1e-2, which rounding changes little.
    assert solved[1][0] == pytest.approx(solved[0][0], rel=1e-6)


def test_two_in_one_problem(bal):
    """Models of the same sizes and name are different, each with its own loss."""
    generator = numpy.random.default_rng(2)
    n = len(bal.points)
    a = numpy.arange(n - 1, dtype=numpy.int32)
    b = a + 1
    measured = numpy.column_stack(
        [generator.uniform(1, 2, n - 1), generator.uniform(0.1, 0.2, n - 1)]
    )
    weights = generator.uniform(0.5, 2, n - 1)
    # Another functor of these sizes, of the same name.
    twice = DISTANCE.replace("/ sigma", "/ sigma * 2.0")
    problem = make_problem(bal)
    for source, loss in ((DISTANCE, None), (twice, ceres_ext.CauchyLoss(2.0))):
        problem.add_residuals(
            compiled(source, "Distance", 1, [3, 3]),
            measured,
            [(1, a), (1, b)],
            loss=loss,
            weights=weights,
        )
    problem.add_residuals(
        compiled(SMALL, "Small", 2, [9]), numpy.empty((20, 0)), [(0, None)]
    )
    named, first, second, small = ceres_ext.evaluate(
        problem, device="HOST", apply_loss_function=False
    ).residuals
    length = numpy.linalg.norm(bal.points[1:] - bal.points[:-1], axis=1)
    expected = (length - measured[:, 0]) / measured[:, 1]
    numpy.testing.assert_allclose(first[:, 0], expected, rtol=1e-12, atol=1e-12)
    numpy.testing.assert_allclose(second[:, 0], 2 * expected, rtol=1e-12, atol=1e-12)
    numpy.testing.assert_allclose(small, bal.cameras[:, 7:] * [10, 100])
    cost = 0.5 * (
        (named**2).sum()
        + (weights * expected**2).sum()
        + (weights * 4 * numpy.log1p((2 * expected) ** 2 / 4)).sum()
        + (small**2).sum()
    )
    assert ceres_ext.evaluate(problem, device="HOST").cost == pytest.approx(cost)
    summary = ceres_ext.solve(problem, device="HOST", max_num_iterations=5)
    assert summary.path == "FULL", summary.path_reason
    assert summary.final_cost < summary.initial_cost
    # Stock Ceres evaluates them too, one by one.
    stock = ceres_ext.solve(problem, enabled=False, max_num_iterations=1)
    assert stock.path == "CERES"
    assert stock.initial_cost == pytest.approx(summary.final_cost)


def test_a_functor_that_fails(bal):
    points = numpy.zeros((2, 3))
    problem = ceres_ext.ArrayProblem()
    problem.add_parameters(points)
    index = numpy.array([[0], [1]], numpy.int32)
    problem.add_residuals(
        compiled(DISTANCE, "Distance", 1, [3, 3]),
        numpy.ones((1, 2)),
        [(0, index[0]), (0, index[1])],
    )
    with pytest.raises(ArithmeticError, match="can't be evaluated"):
        ceres_ext.evaluate(problem)


def test_the_cache(cache):
    first = bal_model()
    libraries = set(cache.glob("*.so"))
    before = {path: path.stat().st_mtime_ns for path in libraries}
    assert repr(bal_model()) == repr(first)
    assert {path: path.stat().st_mtime_ns for path in cache.glob("*.so")} == before
    compiled(BAL + "// another\n", "SnavelyError", 2, [9, 3])
    assert len(set(cache.glob("*.so"))) == len(libraries) + 1
    assert cache.stat().st_mode & 0o077 == 0
    assert not list(cache.glob("compile-*"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (BAL.replace("camera[6]", "kamera[6]"), "source:1[0-9]:.*kamera"),
        (BAL.replace("double x, y;", "float x; float y;"), "must be of type double"),
        (BAL.replace("double x, y;", "double x, y; std::vector<int> z;"), "trivially"),
        (BAL + "int undefined(); int i = undefined();", "undefined"),
        ("struct Other {};", "SnavelyError"),
    ],
)
def test_bad_source(source, words):
    with pytest.raises(ceres_ext.CompilationError, match=words):
        compiled(source, "SnavelyError", 2, [9, 3])


def test_no_compiler(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        ceres_ext.CompilationError,
        match=r"takes a C\+\+17 compiler: expected .* in PATH, .* CXX, found none",
    ):
        bal_model()
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    with pytest.raises(
        ceres_ext.CompilationError,
        match=r"CXX: expected a C\+\+ compiler, found no program 'no-such-compiler'",
    ):
        bal_model()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((1, "A", 1, [1]), TypeError, "source: expected a str, found int"),
        (("", "A; int b", 1, [1]), ValueError, "functor: expected the name of a type"),
        (("", "A", 0, [1]), ValueError, "num_residuals: expected 1 to 1000, found 0"),
        (("", "A", 1.0, [1]), TypeError, "num_residuals: expected an int, found 1.0"),
        (("", "A", 1, []), TypeError, "block_sizes: expected a sequence of sizes"),
        (("", "A", 1, [3, 0]), ValueError, r"block_sizes\[1\]: expected 1 to 1000"),
    ],
)
def test_arguments(arguments, error, words):
    with pytest.raises(error, match=f"^{words}"):
        compiled(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"observations": numpy.zeros((4, 3))},
            ValueError,
            r"observations: expected an array of shape \(any, 2\), found \(4, 3\)",
        ),
        (
            {"blocks": [(0, None)]},
            ValueError,
            "blocks: SnavelyError: expected 2, found 1",
        ),
        (
            {"blocks": [(1, None), (0, None)]},
            ValueError,
            r"blocks\[0\]: SnavelyError: expected parameters of shape \(any, 9\), "
            r"found \(4, 3\)",
        ),
        (
            {"camera_model": "PINHOLE"},
            ValueError,
            "camera_model: expected None with a compiled cost function",
        ),
        (
            {"covariances": numpy.eye(2)},
            ValueError,
            "covariances: expected None with a compiled cost function",
        ),
    ],
)
def test_refusals(arguments, error, words):
    problem = ceres_ext.ArrayProblem()
    problem.add_parameters(numpy.zeros((4, 9)))
    problem.add_parameters(numpy.zeros((4, 3)))
    good = {"observations": numpy.zeros((4, 2)), "blocks": [(0, None), (1, None)]}
    with pytest.raises(error, match=f"^{words}"):
        problem.add_residuals(bal_model(), **{**good, **arguments})


def nvcc():
    path = shutil.which("nvcc", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    if path is None:
        pytest.skip("no nvcc")
    return path


def test_nvcc_compiles_it(monkeypatch):
    """The device form, without a device."""
    monkeypatch.setenv("CUDACXX", nvcc())
    monkeypatch.setattr(compilation, "_driver", lambda: (99, [90]))
    model = compiled(DISTANCE, "Distance", 1, [3, 3], device=True)
    assert model.has_device_form, model.host_only_reason
    assert model.host_only_reason == ""
    # Small is not CERES_HOST_DEVICE.
    model = compiled(SMALL, "Small", 2, [9], device=True)
    assert not model.has_device_form
    assert "nvcc" in model.host_only_reason
    assert "__host__ function" in model.host_only_reason


def test_nvcc_is_not_newer_than_the_driver(monkeypatch, tmp_path):
    for name, cuda in (("newer", "13.0"), ("older", "12.4")):
        compiler = tmp_path / name / "nvcc"
        compiler.parent.mkdir()
        compiler.write_text(f"#!/bin/sh\necho Cuda compilation tools, release {cuda}, V")
        compiler.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(tmp_path / "newer" / "nvcc"))
    monkeypatch.setenv("PATH", str(tmp_path / "older"))
    monkeypatch.delenv("CXX", raising=False)
    flags = ["-gencode", "arch=compute_90,code=sm_90"]
    for cuda, folder in ((12, "older"), (13, "newer")):
        monkeypatch.setattr(compilation, "_driver", lambda cuda=cuda: (cuda, [90]))
        found = compilation._find_nvcc()
        assert found == ([str(tmp_path / folder / "nvcc")], flags, "")
    monkeypatch.setattr(compilation, "_driver", lambda: (11, [90]))
    assert compilation._find_nvcc()[2].endswith(", and the driver of CUDA 11")


def test_a_device_evaluates_it(bal):
    if not compilation._driver()[1]:
        pytest.skip("no CUDA device")
    nvcc()
    model = compiled(BAL, "SnavelyError", 2, [9, 3], device=True)
    assert model.has_device_form, model.host_only_reason
    costs = []
    for device in ("HOST", "CUDA"):
        copy = bal._replace(cameras=bal.cameras.copy(), points=bal.points.copy())
        summary = ceres_ext.solve(
            make_problem(copy, model), **{**OPTIONS, "device": device}
        )
        assert summary.path == "FULL", summary.path_reason
        costs.append((summary.initial_cost, summary.final_cost))
    assert costs[1] == pytest.approx(costs[0], rel=1e-6)


def test_another_process_uses_the_cache(cache, tmp_path):
    """Another process loads it without compiling again."""
    bal_model()
    before = set(cache.glob("*.so"))
    program = tmp_path / "program.py"
    program.write_text(
        f"import ceres_ext\n"
        f"print(ceres_ext.compile_cost_function({BAL!r}, 'SnavelyError', 2, [9, 3],"
        f" device=False))\n"
    )
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=True
    )
    assert "SnavelyError, 2, 9, 3" in done.stdout
    assert set(cache.glob("*.so")) == before


def test_headers_are_in_the_package():
    folder = pathlib.Path(ceres_ext.__file__).parent / "include"
    for name in (
        "ceres/jet.h",
        "ceres/rotation.h",
        "ceres_ext/camera_models.h",
        "ceres_ext/photogrammetry.h",
        "ceres_ext/device/cost_function.cuh",
    ):
        assert (folder / name).exists(), name
