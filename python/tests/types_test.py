# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""A type checker finds the errors of programs."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy")

PROGRAM = """
import numpy
import ceres_ext

problem = ceres_ext.ArrayProblem()
points = problem.add_parameters(numpy.zeros((4, 3)))
options = ceres_ext.SolverOptions(max_num_iterations=5, device="host")
options.preconditioner_type = "SCHUR_JACOBI"
summary = ceres_ext.solve(
    problem, options, callback=ceres_ext.print_progress, linear_solver="auto", eta=1
)
cost: float = summary.final_cost
names: dict[str, object] = summary.to_dict()
evaluation = ceres_ext.evaluate(problem, num_threads=2, device="HOST")
pixels = numpy.zeros((4, 2))
blocks = [(0, None), (0, None), (0, None)]
problem.add_residuals("ReprojectionError", pixels, blocks, camera_model="OPENCV")
covariance = numpy.eye(3)
problem.add_residuals(
    "PositionPrior", pixels, [(0, None)], rotation="ANGLE_AXIS", covariances=covariance
)
own = ceres_ext.compile_cost_function("struct A {};", "A", 1, [3], device=False)
problem.add_residuals(own, pixels, blocks, loss=ceres_ext.HuberLoss(1.0))
reason: str = own.host_only_reason
"""


# A line that is added to the program, and a part of its error.
WRONG = [
    ("ceres_ext.solve(problem, max_num_iteration=5)", "max_num_iteration"),
    ("ceres_ext.solve(problem, device='gpu')", "device"),
    ("ceres_ext.solve(problem, eta='small')", "eta"),
    ("ceres_ext.evaluate(problem, devize='host')", "devize"),
    ("ceres_ext.SolverOptions(linear_solver='exact')", "linear_solver"),
    ("options.device = 'gpu'", "Literal"),
    ("options.max_num_iteration = 5", "max_num_iteration"),
    ("problem.add_residuals('BalError', numpy.zeros((1, 2)), [])", "BalError"),
    (
        "problem.add_residuals('PointPrior', pixels, [], camera_model='OPENCVE')",
        "camera_model",
    ),
    (
        "problem.add_residuals('PosePrior', pixels, [], rotation='MATRIX')",
        "rotation",
    ),
    ("ceres_ext.compile_cost_function('', 'A', '2', [3])", "Argument 3"),
    ("own.host_only", "host_only"),
    ("summary.final_kost", "final_kost"),
]


def mypy(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """The output of one run for all programs: most of its time is for NumPy."""
    folder = tmp_path_factory.mktemp("programs")
    names = []
    for i, wrong in enumerate(["", *(wrong for wrong, _ in WRONG)]):
        names.append(f"program_{i}.py")
        (folder / names[-1]).write_text(PROGRAM + wrong + "\n")
    return mypy(folder, "--strict", *names)


def test_a_right_program(said):
    assert "program_0.py" not in said, said
    n = len(WRONG)
    assert f"Found {n} errors in {n} files (checked {n + 1} source files)" in said, said


def test_the_package(tmp_path):
    done = mypy(tmp_path, "-p", "ceres_ext")
    assert "Success" in done, done


@pytest.mark.parametrize("i", range(len(WRONG)))
def test_a_wrong_program(said, i):
    lines = [x for x in said.splitlines() if x.startswith(f"program_{i + 1}.py:")]
    line = PROGRAM.count("\n") + 1
    assert lines and f":{line}: error" in lines[0], said
    assert WRONG[i][1] in "\n".join(lines), said
    assert sum(": error" in x for x in lines) == 1, said
