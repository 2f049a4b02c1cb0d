#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Covariances of poses, this library's beside pycolmap's.

  scripts/covariance_beside_pycolmap.py BINARIES OUTPUT DEVICE THREADS COUNT...

For models of so many generated images (75 points an image, 10 images a point,
intrinsics constant, two images fix the gauge) a line of JSON each: the seconds of
colmap_adjuster --covariance, which also has the blocks of all points, and of
pycolmap.estimate_ba_covariance of poses, from one process each on one machine, and
the largest difference of two standard deviations, relative. Points without parallax,
which COLMAP's filters remove, are removed first. BINARIES: the folder with
bal_generate and colmap_adjuster (a build tree is searched); DEVICE: host, cuda.
Needs pycolmap.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

import numpy
import pycolmap


def program(binaries, name):
    for path in pathlib.Path(binaries).rglob(name):
        if path.is_file():
            return path
    sys.exit(f"expected {name} under {binaries}")


def generate(binaries, folder, count):
    subprocess.run(
        [
            program(binaries, "bal_generate"),
            f"--num_cameras={count}",
            f"--num_points={75 * count}",
            f"--num_observations={750 * count}",
            "--outlier_fraction=0",
            "--camera_model=SIMPLE_RADIAL",
            f"--output={folder}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    model = pycolmap.Reconstruction(folder)
    pycolmap.ObservationManager(model).filter_all_points3D(100.0, 3.0)
    model.write_binary(folder)


def of_ceres_ext(binaries, folder, device, threads):
    subprocess.run(
        [
            program(binaries, "colmap_adjuster"),
            f"--input_path={folder}",
            f"--output_path={folder / 'solved'}",
            "--max_num_iterations=5",
            "--output_type=BIN",
            "--refine_focal_length=false",
            "--refine_extra_params=false",
            f"--covariance={folder / 'covariance.npz'}",
            "--covariance_gauge=as_solved",
            "--covariance_scale=a_priori",
            f"--device={device}",
            f"--num_threads={threads}",
            f"--report_json={folder / 'report.json'}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    report = json.loads((folder / "report.json").read_text())["covariance"]
    return report, numpy.load(folder / "covariance.npz")


def of_pycolmap(folder):
    model = pycolmap.Reconstruction(folder / "solved")
    options = pycolmap.BundleAdjustmentOptions()
    options.refine_focal_length = False
    options.refine_extra_params = False
    config = pycolmap.BundleAdjustmentConfig()
    for image in model.images:
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, model)
    covariance_options = pycolmap.BACovarianceOptions()
    covariance_options.params = pycolmap.BACovarianceOptionsParams.POSES
    covariance_options.damping = 1e-12
    start = time.perf_counter()
    found = pycolmap.estimate_ba_covariance(covariance_options, model, adjuster)
    return time.perf_counter() - start, found


def difference(ours, theirs):
    """Compares translations, which both have in one unit."""
    worst = 0.0
    for image, block in zip(ours["images_id"], ours["images"]):
        found = theirs.get_cam_cov_from_world(int(image))
        if found is None or found.shape != (6, 6) or not numpy.diag(block).all():
            continue
        ratio = numpy.sqrt(numpy.diag(block)[3:] / numpy.diag(found)[3:])
        worst = max(worst, numpy.abs(ratio - 1).max())
    return worst


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    binaries, output, device, threads, *counts = sys.argv[1:]
    for count in map(int, counts):
        folder = pathlib.Path(output) / str(count)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        generate(binaries, folder, count)
        (folder / "solved").mkdir()
        report, ours = of_ceres_ext(binaries, folder, device, threads)
        result = {
            "images": count,
            "observations": report["num_residuals"] // 2,
            "columns": report["num_columns"],
            "device": report["device"],
            "ceres_ext": report["total_time_in_seconds"],
        }
        result["pycolmap"], theirs = of_pycolmap(folder)
        result["pycolmap_version"] = pycolmap.__version__
        result["ratio"] = result["pycolmap"] / result["ceres_ext"]
        result["difference"] = None if theirs is None else difference(ours, theirs)
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
