# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""What the examples in Python print. CERES_EXT_BUILD: the build folder."""

import math
import os
import pathlib
import re
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
GENERATE = pathlib.Path(os.environ["CERES_EXT_BUILD"]) / "examples/bal/bal_generate"
NOISE = 0.5


def run(*arguments):
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def generate(output, *flags):
    """A problem of 20 cameras, 500 points and 4000 observations."""
    sizes = ["--num_cameras=20", "--num_points=500", "--num_observations=4000"]
    run(GENERATE, *sizes, f"--pixel_noise={NOISE}", f"--output={output}", *flags)
    return output


def number(pattern, text):
    return float(re.search(pattern, text).group(1))


def test_arrays(tmp_path):
    problem = generate(tmp_path / "problem.txt", "--outlier_fraction=0.02")
    said = run(sys.executable, EXAMPLES / "arrays.py", problem)
    # 80 +- 9 of 4000 observations are outliers, some of them near.
    assert 40 <= number(r"(\d+) of 4000 observations removed", said) <= 80 + 5 * 9
    # Two coordinates; estimating parameters makes residuals smaller.
    assert number(r"squared error (\S+) pixels", said) < NOISE * math.sqrt(2)


def test_callback(tmp_path):
    problem = generate(tmp_path / "problem.txt", "--outlier_fraction=0")
    said = run(sys.executable, EXAMPLES / "callback.py", problem)
    assert "USER_SUCCESS after " in said
    costs = [float(cost) for cost in re.findall(r"cost (\S+)\n", said)]
    assert len(costs) == number(r"after (\d+) iterations", said) + 1
    # Chi-squared of the noise, and what the steps that were left out would gain.
    freedom = 2 * 4000 - 9 * 20 - 3 * 500 + 7
    deviation = math.sqrt(2 * freedom)
    assert costs[-1] < 1.1 * NOISE**2 / 2 * (freedom + 5 * deviation)
    assert costs[0] > 10 * costs[-1]


def test_colmap_model(tmp_path):
    model = generate(tmp_path / "model", "--camera_model=RADIAL", "--outlier_fraction=0")
    said = run(sys.executable, EXAMPLES / "colmap_model.py", model)
    # The mean length of the noise; estimating parameters makes it smaller.
    mean = NOISE * math.sqrt(math.pi / 2)
    assert number(r"-> (\S+) pixels", said) < mean
    assert number(r"error (\S+) ->", said) > 2 * mean



def test_inertial_odometry():
    said = run(sys.executable, EXAMPLES / "inertial_odometry.py")
    # 13.5 m and 30 s; integration alone is metres away after 10 s.
    assert number(r"largest (\S+) m", said) < 0.5


def test_calibrations():
    said = run(sys.executable, EXAMPLES / "calibrations.py", "20")
    assert "20 as windows" in said
    # Chi-squared of the noise, with five deviations.
    freedom = 20 * (2 * 12 * 48 - 5 - 6 * 12)
    ratio = number(r"noise leaves: (\S+)", said)
    assert abs(ratio - 1) < 5 * math.sqrt(2 / freedom)
