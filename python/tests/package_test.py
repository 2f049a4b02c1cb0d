# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The package: what it carries, and other packages with a Ceres beside it."""

import ast
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest

import ceres_ext

FOLDER = pathlib.Path(ceres_ext.__file__).parent
ROOT = pathlib.Path(__file__).parents[2]
EXAMPLE = ROOT / "python" / "examples" / "solve_bal.py"


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    ).stdout


def test_stubs_have_all_names():
    assert (FOLDER / "py.typed").exists()
    tree = ast.parse((FOLDER / "_ceres_ext.pyi").read_text())
    stubs = {node.name for node in tree.body if hasattr(node, "name")}
    python = {
        "BalProblem",
        "Communicator",
        "CompilationError",
        "Covariance",
        "Evaluation",
        "MpiCommunicator",
        "ProductManifold",
        "SavedSummary",
        "__version__",
        "colmap",
        "compile_cost_function",
        "covariance",
        "evaluate",
        "print_progress",
        "read_bal",
        "write_bal",
    }
    assert set(ceres_ext.__all__) - python <= stubs
    options = next(n for n in tree.body if getattr(n, "name", "") == "SolverOptions")
    text = ast.unparse(options)
    assert "def max_num_iterations(self) -> int" in text
    assert "def linear_solver_type(self) -> Literal['DENSE_NORMAL" in text
    # With these a type checker would take any name for an option.
    assert "__setattr__" not in text and "__getattr" not in text


def test_docstrings_have_the_defaults():
    options = ceres_ext.SolverOptions
    assert options.max_num_iterations.__doc__ == "Default 50."
    assert options.linear_solver_type.__doc__.startswith("Default ITERATIVE_SCHUR, one")
    assert options.device.__doc__.startswith(
        "Default AUTO, one of AUTO, HOST, CUDA, in"
    )
    assert options.report.__doc__.startswith("Default ''. ")


@pytest.mark.parametrize(
    ("header", "struct", "left_out"),
    [
        ("options.h", "Options", {"cuda_stream", "communicator"}),
        ("summary.h", "Summary", set()),
    ],
)
def test_no_field_is_forgotten(header, struct, left_out):
    text = (ROOT / "ceres_ext" / header).read_text()
    body = re.search(rf"^struct {struct} .*?^}};", text, re.DOTALL | re.MULTILINE)[0]
    fields = set(re.findall(r"^  [\w:]+\*? (\w+)(?: =[^;]+)?;", body, re.MULTILINE))
    assert len(fields) > 10
    bound = {"Options": ceres_ext.SolverOptions, "Summary": ceres_ext.Summary}[struct]
    assert {name for name in fields if not hasattr(bound, name)} == left_out


def test_libraries_are_those_of_the_package():
    maps = run("-c", "import ceres_ext; print(open('/proc/self/maps').read())")
    # Folders may have any name; the path is the last of six fields.
    fields = [line.split(maxsplit=5) for line in maps.splitlines()]
    mapped = {pathlib.Path(field[5]) for field in fields if len(field) == 6}
    assert {path for path in mapped if "ceres" in path.name} == set(
        FOLDER.resolve().glob("*.so")
    )


IS_FOR_CUDA_12 = ceres_ext.__version__.endswith("+cu12")


def test_metadata_names_the_cuda_of_the_wheel():
    """The wheel for CUDA 12 has a version and requirements of its own."""
    metadata = importlib.metadata.metadata("ceres-ext")
    assert metadata["Version"] == ceres_ext.__version__
    found = {
        re.match(r"[\w-]+", line)[0]
        for line in metadata.get_all("Requires-Dist")
        if "nvidia" in line
    }
    expected = {
        True: {"nvidia-cublas-cu12", "nvidia-cusolver-cu12", "nvidia-cudss-cu12"},
        False: {"nvidia-cublas", "nvidia-cusolver", "nvidia-cudss-cu13"},
    }
    assert found == expected[IS_FOR_CUDA_12]


# Prints the machine that solves the problem argv[1], with a driver of CUDA 11.8.
OLD_DRIVER = """
import ceres_ext, sys
bal = ceres_ext.read_bal(sys.argv[1])
problem = ceres_ext.ArrayProblem()
blocks = [
    (problem.add_parameters(bal.cameras), bal.camera_index),
    (problem.add_parameters(bal.points), bal.point_index),
]
problem.add_residuals("BalReprojectionError", bal.observations, blocks)
print(ceres_ext.solve(problem, max_num_iterations=1, device="CUDA").device)
"""


def test_a_driver_that_is_too_old(bal_path, tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    source = tmp_path / "driver.c"
    source.write_text(
        "int cuInit(unsigned flags) { return 0; }\n"
        "int cuDriverGetVersion(int* version) { *version = 11080; return 0; }\n"
    )
    driver = tmp_path / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", driver], check=True)
    found = run("-c", OLD_DRIVER, bal_path, LD_LIBRARY_PATH=str(tmp_path))
    if "this build has no CUDA" in found:
        pytest.skip("no CUDA")
    needed = "12.4" if IS_FOR_CUDA_12 else "13.0"
    assert (
        f"the driver is of CUDA 11.8, and this build needs one of CUDA {needed} or "
        "later: update the driver" in found
    )


def test_names_have_docstrings():
    for name in ceres_ext.__all__:
        if name != "__version__":
            assert getattr(ceres_ext, name).__doc__, name
    for name in ("add_parameters", "add_residuals"):
        assert "float64" in getattr(ceres_ext.ArrayProblem, name).__doc__


@pytest.mark.parametrize(
    "name",
    [
        "ArrayProblem.add_parameters",
        "ArrayProblem.add_residuals",
        "ProductManifold",
        "compile_cost_function",
        "covariance",
        "evaluate",
        "print_progress",
        "read_bal",
        "solve",
        "solve_batch",
        "write_bal",
        "colmap.bundle_adjustment",
        "colmap.img_from_cam",
        "colmap.read",
        "colmap.write",
    ],
)
def test_docstrings_have_an_example(name):
    found = ceres_ext
    for part in name.split("."):
        found = getattr(found, part)
    example = [line for line in found.__doc__.splitlines() if line[:4] == " " * 4]
    assert re.search(rf"\b{part}\b", "\n".join(example)), found.__doc__


def test_module_docstring_is_a_program(bal_path, monkeypatch):
    lines = ceres_ext.__doc__.splitlines()
    code = "\n".join(line[4:] for line in lines if line.startswith("    "))
    code = code.replace("problem-16-22106-pre.txt", str(bal_path))
    before = ceres_ext.read_bal(bal_path)
    result = {"ceres_ext": ceres_ext}
    exec(code, result)
    assert result["summary"].is_solution_usable()
    assert not numpy.array_equal(result["bal"].points, before.points)


# Solves the problem argv[1], between other programs' lines.
SOLVE = """
import ceres_ext, sys
def solve():
    bal = ceres_ext.read_bal(sys.argv[1])
    problem = ceres_ext.ArrayProblem()
    blocks = [
        (problem.add_parameters(bal.cameras), bal.camera_index),
        (problem.add_parameters(bal.points), bal.point_index),
    ]
    problem.add_residuals("BalReprojectionError", bal.observations, blocks)
    summary = ceres_ext.solve(problem, max_num_iterations=5, device="HOST")
    assert summary.path == "FULL"
    # A factorisation too, by Ceres and SuiteSparse.
    options = {"linear_solver_type": "SPARSE_NORMAL_CHOLESKY"}
    options.update(dynamic_sparsity=True, num_threads=1)
    factorised = ceres_ext.solve(problem, max_num_iterations=2, **options)
    assert factorised.path == "CERES", factorised.path_reason
    print(summary.final_cost, factorised.final_cost)
solve()
"""


def test_another_libceres_is_left_alone(bal_path, tmp_path):
    compiler = shutil.which("c++") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler")
    expected = run("-c", SOLVE, bal_path)
    # With the name that the patched libceres has outside of the package, and
    # nothing of what it has.
    other = tmp_path / "libceres.so.4"
    subprocess.run(
        [
            compiler,
            "-shared",
            "-o",
            other,
            "-Wl,-soname,libceres.so.4",
            "-x",
            "c",
            "/dev/null",
        ],
        check=True,
    )
    load = f"import ctypes; ctypes.CDLL({str(other)!r})\n"
    assert run("-c", load + SOLVE, bal_path) == expected


PYCERES = """
def other():
    import numpy, pyceres
    x = numpy.zeros(3)
    problem = pyceres.Problem()
    prior = pyceres.factors.NormalPrior(numpy.array([[1.0], [2.0], [3.0]]), numpy.eye(3))
    problem.add_residual_block(prior, None, [x])
    options = pyceres.SolverOptions()
    summary = pyceres.SolverSummary()
    pyceres.solve(options, problem, summary)
    assert numpy.allclose(x, [1, 2, 3]), summary.FullReport()
"""
PYCOLMAP = """
def other():
    import pycolmap
    options = pycolmap.SyntheticDatasetOptions()
    options.num_points3D = 50
    reconstruction = pycolmap.synthesize_dataset(options)
    pycolmap.bundle_adjustment(reconstruction)
"""


@pytest.mark.parametrize(
    ("name", "other"), [("pyceres", PYCERES), ("pycolmap", PYCOLMAP)]
)
@pytest.mark.parametrize("order", ["other()\n{}other()\n", "{}other()\nsolve()\n"])
def test_beside_another_package(bal_path, name, other, order):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"no {name}")
    expected = run("-c", SOLVE, bal_path)
    found = run("-c", other + order.format(SOLVE), bal_path)
    lines = [line for line in found.splitlines(keepends=True) if line == expected]
    assert len(lines) == 1 + order.count("solve()"), found


def test_example(bal_path, tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    said = run(EXAMPLE, bal_path, plot, MPLBACKEND="Agg")
    assert "Ceres Ext" in said
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 10000
