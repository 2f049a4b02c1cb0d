# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The Python code of docs/python.md and README.md, in its order."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import types

import numpy
import pytest
from conftest import PROGRAMS

import ceres_ext

ROOT = pathlib.Path(__file__).parents[2]


class Tensor:
    """A tensor of torch on the host, as ArrayProblem reads it."""

    def __init__(self, array):
        self._array = numpy.array(array)
        self.__dlpack__ = self._array.__dlpack__

    def __dlpack__(self, **arguments):
        return self._array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def fake_torch():
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(is_available=lambda: False)
    torch.tensor = lambda array, device: Tensor(array)
    return torch


@pytest.fixture
def folder(bal_path, tmp_path, monkeypatch):
    """A folder with the files that the page reads."""
    shutil.copy(bal_path, tmp_path / "problem-16-22106-pre.txt")
    (tmp_path / "sparse").mkdir()
    model = tmp_path / "sparse" / "0"
    subprocess.run(
        [
            PROGRAMS / "bal_generate",
            "--num_cameras=10",
            "--num_points=200",
            "--num_observations=1000",
            "--camera_model=RADIAL",
            f"--output={model}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    poses = ceres_ext.colmap.read(model).image_poses
    positions = numpy.random.default_rng(1).normal(size=(len(poses), 3))
    numpy.savetxt(tmp_path / "gps.txt", positions)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if importlib.util.find_spec("torch") is None:
        monkeypatch.setitem(sys.modules, "torch", fake_torch())
    return tmp_path


def blocks(page):
    """The code of a page with the number of its first line."""
    text = (ROOT / page).read_text()
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield text.count("\n", 0, block.start()) + 1, block[1]


def test_the_course(folder, capfd):
    names = {}
    num_run = 0
    for line, code in blocks("docs/python.md"):
        if "import pycolmap" in code and importlib.util.find_spec("pycolmap") is None:
            continue
        # Lines of errors are those of the page.
        exec(compile("\n" * line + code, ROOT / "docs/python.md", "exec"), names)
        num_run += 1
        summary = names["summary"]
        if hasattr(summary, "solve"):
            summary = summary.solve
        if hasattr(summary, "path"):
            assert summary.path == "FULL", (line, summary.path_reason)
            assert summary.is_solution_usable(), line
    assert num_run >= 8
    assert (folder / "refined").is_dir()
    assert "iter          cost" in capfd.readouterr().out


def test_readme(folder):
    bal = ceres_ext.read_bal(folder / "problem-16-22106-pre.txt")
    names = {"ceres_ext": ceres_ext}
    order = ["camera_values", "point_values", "camera_index", "point_index", "pixels"]
    names.update(zip(order, bal, strict=True))
    before = bal.points.copy()
    for line, code in blocks("README.md"):
        exec(compile("\n" * line + code, ROOT / "README.md", "exec"), names)
    assert not numpy.array_equal(bal.points, before)
