# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Problems to solve. CERES_EXT_BUILD: the build folder of the programs."""

import os
import pathlib
import subprocess

import numpy
import pytest

import ceres_ext

BUILD = pathlib.Path(os.environ["CERES_EXT_BUILD"])
PROGRAMS = BUILD / "examples" / "bal"

# Options of every solve, so that it runs to the end and takes this library's
# path.
OPTIONS = {
    "preconditioner_type": "SCHUR_JACOBI",
    "eta": 1e-2,
    "function_tolerance": 1e-16,
    "gradient_tolerance": 1e-16,
    "parameter_tolerance": 1e-16,
    "max_solver_time_in_seconds": 1e32,
    "device": "HOST",
}


@pytest.fixture(scope="session")
def bal_path(tmp_path_factory):
    """A problem of 20 cameras, 500 points and 2000 observations."""
    path = tmp_path_factory.mktemp("bal") / "problem.txt"
    subprocess.run(
        [
            PROGRAMS / "bal_generate",
            "--num_cameras=20",
            "--num_points=500",
            "--num_observations=2000",
            f"--output={path}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


@pytest.fixture
def bal(bal_path):
    return ceres_ext.read_bal(bal_path)


def repeated(bal, times):
    """The same problem with so many times its observations, to take longer."""
    return bal._replace(
        camera_index=numpy.tile(bal.camera_index, times),
        point_index=numpy.tile(bal.point_index, times),
        observations=numpy.tile(bal.observations, (times, 1)),
    )


def make_problem(
    bal, cost_function="BalReprojectionError", loss=None, weights=None, **cameras
):
    problem = ceres_ext.ArrayProblem()
    blocks = [
        (problem.add_parameters(bal.cameras, **cameras), bal.camera_index),
        (problem.add_parameters(bal.points), bal.point_index),
    ]
    problem.add_residuals(
        cost_function, bal.observations, blocks, loss=loss, weights=weights
    )
    return problem
