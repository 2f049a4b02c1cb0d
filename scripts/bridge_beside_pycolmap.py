#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""ceres_ext.colmap.bundle_adjustment beside pycolmap's, in one process.

  scripts/bridge_beside_pycolmap.py DATA DEVICE THREADS REPETITIONS [MODEL...]

DATA: the folder with the models, default all of DATA/real and DATA/colmap; DEVICE: HOST,
CUDA. Each run takes a copy of the reconstruction, without observations of negative
depth, with the default options of pycolmap (all threads, its own choice of solver) and
the gauge of two cameras. A line of JSON a model: the least seconds of the whole call
of each, in turn, the final costs, and the steps. The first call of each, which loads
libraries, is not counted. Needs pycolmap.
"""

import json
import pathlib
import statistics
import sys
import time

import pycolmap

from ceres_ext import colmap


def is_model(path):
    return any((path / f"images.{end}").is_file() for end in ("bin", "txt"))


def models(data, names):
    for name in names or ("real/*", "real/*/local", "colmap/*"):
        for path in sorted(pathlib.Path(data).glob(name)):
            if is_model(path) and not is_model(path / "local"):
                yield path


def read(path):
    reconstruction = pycolmap.Reconstruction(path)
    manager = pycolmap.ObservationManager(reconstruction)
    manager.filter_observations_with_negative_depth()
    config = pycolmap.BundleAdjustmentConfig()
    for image in reconstruction.reg_image_ids():
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    return reconstruction, options, config


def ours(path, device, threads):
    reconstruction, options, config = read(path)
    start = time.perf_counter()
    summary = colmap.bundle_adjustment(
        reconstruction, options, config, device=device, num_threads=threads
    )
    return time.perf_counter() - start, summary.solve


def theirs(path, threads):
    reconstruction, options, config = read(path)
    options.ceres.solver_options.num_threads = threads
    start = time.perf_counter()
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(
        options, config, reconstruction
    )
    summary = adjuster.solve().ceres_summary
    return time.perf_counter() - start, summary


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    data, device, threads, repetitions, *names = sys.argv[1:]
    threads = int(threads)
    ratios = []
    for path in models(data, names):
        seconds = {"ceres_ext": [], "pycolmap": []}
        result = {"model": str(path.relative_to(data))}
        ours(path, device, threads)
        for _ in range(int(repetitions)):
            for name in seconds:
                solve = (
                    ours(path, device, threads)
                    if name == "ceres_ext"
                    else theirs(path, threads)
                )
                seconds[name].append(solve[0])
                result[name] = min(seconds[name])
                result[name + "_cost"] = solve[1].final_cost
                steps = solve[1].num_successful_steps
                result[name + "_steps"] = steps + solve[1].num_unsuccessful_steps
        result["ratio"] = result["pycolmap"] / result["ceres_ext"]
        ratios.append(result["ratio"])
        print(json.dumps(result), flush=True)
    print(json.dumps({"median": statistics.median(ratios), "least": min(ratios)}))


if __name__ == "__main__":
    main()
