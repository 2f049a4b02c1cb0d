# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Covariances of colmap_adjuster, against those of pycolmap."""

import pathlib
import subprocess

import numpy
import pytest
from conftest import BUILD, PROGRAMS

pycolmap = pytest.importorskip("pycolmap")

REAL = pathlib.Path(__file__).parents[2] / ".." / "shared" / "data" / "real"
# The smaller ones, which are solved in seconds.
MODELS = ["generated", "colmap_23", "nerf_71"]


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    if request.param != "generated":
        path = REAL / request.param
        if not path.is_dir():
            pytest.skip(f"no {path}")
        return path / "local" if (path / "local").is_dir() else path
    path = tmp_path / "generated"
    subprocess.run(
        [
            PROGRAMS / "bal_generate",
            "--num_cameras=12",
            "--num_points=400",
            "--num_observations=2400",
            "--outlier_fraction=0",
            "--camera_model=OPENCV",
            f"--output={path}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


def of_pycolmap(path):
    """Blocks at the solution of colmap_adjuster, whose gauge is this one too."""
    reconstruction = pycolmap.Reconstruction(path)
    options = pycolmap.BundleAdjustmentOptions()
    config = pycolmap.BundleAdjustmentConfig()
    for image in reconstruction.images:
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(
        options, config, reconstruction
    )
    covariance_options = pycolmap.BACovarianceOptions()
    covariance_options.damping = 0.0
    found = pycolmap.estimate_ba_covariance(
        covariance_options, reconstruction, adjuster
    )
    assert found is not None
    return reconstruction, found


def test_as_pycolmap(model, tmp_path):
    solved = tmp_path / "solved"
    file = tmp_path / "sigmas.npz"
    subprocess.run(
        [
            BUILD / "examples" / "colmap" / "colmap_adjuster",
            f"--input_path={model}",
            f"--output_path={solved}",
            f"--covariance={file}",
            "--covariance_gauge=as_solved",
            "--covariance_scale=a_priori",
            "--output_type=BIN",
            "--device=host",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    ours = numpy.load(file)
    _, theirs = of_pycolmap(solved)
    # Ceres turns a quaternion by half of what its tangent vector says.
    scale = numpy.array([2.0, 2.0, 2.0, 1.0, 1.0, 1.0])
    num_compared = 0
    for i, block in zip(ours["images_id"], ours["images"], strict=True):
        other = theirs.get_cam_cov_from_world(int(i))
        # The two that hold the gauge have fewer columns, or none.
        if other is None or other.shape != (6, 6) or (numpy.diag(block) == 0).any():
            continue
        other = other * numpy.outer(scale, scale)
        sigma = numpy.sqrt(numpy.diag(other))
        assert numpy.abs((block - other) / numpy.outer(sigma, sigma)).max() < 1e-5
        num_compared += 1
    assert num_compared >= len(ours["images"]) - 2
    # The covariances of pycolmap are conditional: all else is held, which leaves
    # less.
    for i, block in zip(ours["points_id"], ours["points"], strict=True):
        other = theirs.get_point_cov(int(i))
        more = numpy.linalg.eigvalsh(block - other)
        assert more.min() >= -1e-6 * numpy.trace(other)
