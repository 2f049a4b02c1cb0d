#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
r"""The mappers of ceres_ext.colmap beside pycolmap's, in one process.

  scripts/mapping_beside_pycolmap.py [--global|--positions] FOLDER DEVICE THREADS \
    IMAGES|MODEL...
  scripts/mapping_beside_pycolmap.py --directions DEVICE THREADS IMAGES...

FOLDER keeps the databases. IMAGES: pycolmap generates so many images and 60 points for
each, seen by the 3 to 12 images nearest to it, noise of half a pixel, 10 % wrong
matches, with one camera and with own cameras of known focal length. MODEL: the folder
of a model of COLMAP, whose tracks become matches. Lines of JSON, one for each database
and mapper: seconds in all and in adjustments, calls, images, points, observations, mean
error. "pycolmap" is its own function; "steps" is this package's mapper with pycolmap's
adjuster, whose seconds in adjustments compare. --global: the global mappers.
--positions: generated images have positions with a noise of 0.05; to_positions is the
root of the mean squared distance to them. --directions: global positioning alone, of
such generated images with known rotations: seconds, the cost, and the median distance
of centers to the true ones, which are 5 from the middle. Needs pycolmap.
"""

import collections
import copy
import functools
import itertools
import json
import pathlib
import sys
import tempfile
import time

import numpy
import pycolmap

from ceres_ext import colmap
from ceres_ext.colmap import mapper, positioning, refinement

POINTS_PER_IMAGE = 60


def generate(path, num_images, is_shared, has_positions):
    pycolmap.set_random_seed(1)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 1 if is_shared else num_images
    options.num_frames_per_rig = num_images if is_shared else 1
    options.num_points3D = POINTS_PER_IMAGE * num_images
    options.camera_has_prior_focal_length = not is_shared
    options.inlier_match_ratio = 0.9
    options.prior_position = has_positions
    noise = pycolmap.SyntheticNoiseOptions()
    noise.point2D_stddev = 0.5
    noise.prior_position_stddev = 0.05
    database = pycolmap.Database.open(path)
    model = pycolmap.synthesize_dataset(options, database)
    sees = visible(model)
    pycolmap.synthesize_noise(noise, model, database)
    pairs, geometries = database.read_two_view_geometries()
    database.clear_two_view_geometries()
    for pair, geometry in zip(pairs, geometries, strict=True):
        first, second = pycolmap.pair_id_to_image_pair(pair)
        matches = numpy.asarray(geometry.inlier_matches)
        both = sees[first][matches[:, 0]] & sees[second][matches[:, 1]]
        geometry.inlier_matches = matches[both]
        database.write_two_view_geometry(first, second, geometry)
    database.close()


def make_from_model(path, folder):
    model = pycolmap.Reconstruction(folder)
    database = pycolmap.Database.open(path)
    for camera in model.cameras.values():
        database.write_camera(camera, use_camera_id=True)
    for rig in model.rigs.values():
        database.write_rig(rig, use_rig_id=True)
    for frame in model.frames.values():
        database.write_frame(frame, use_frame_id=True)
    for image_id, image in sorted(model.images.items()):
        database.write_image(image, use_image_id=True)
        pixels = numpy.array([point.xy for point in image.points2D], numpy.float32)
        database.write_keypoints(image_id, pixels.reshape(-1, 2))
    matches = collections.defaultdict(list)
    for point in model.points3D.values():
        seen = sorted((e.image_id, e.point2D_idx) for e in point.track.elements)
        for (i, k), (j, m) in itertools.combinations(seen, 2):
            if i != j:
                matches[i, j].append((k, m))
    for (i, j), pairs in matches.items():
        geometry = pycolmap.TwoViewGeometry()
        geometry.config = pycolmap.TwoViewGeometryConfiguration.UNCALIBRATED
        geometry.inlier_matches = numpy.array(pairs, numpy.uint32)
        database.write_two_view_geometry(i, j, geometry)
    database.close()


def centers_of(model):
    return numpy.array([model.image(i).projection_center() for i in sorted(model.images)])


def nearest(points, centers):
    """(points, images): True for the 3 to 12 images that see a point."""
    rank = numpy.argsort(numpy.argsort(-points @ centers.T, axis=1), axis=1)
    rng = numpy.random.default_rng(1)
    return rank < rng.integers(3, 13, size=len(points))[:, None]


def visible(model):
    """By image: flags of its 2D points that other images may match."""
    images = sorted(model.images)
    ids = sorted(model.point3D_ids())
    points = numpy.array([model.point3D(i).xyz for i in ids])
    near = nearest(points, centers_of(model))
    number = {point_id: k for k, point_id in enumerate(ids)}
    return {
        image_id: numpy.array(
            [
                point.has_point3D() and near[number[point.point3D_id], k]
                for point in model.image(image_id).points2D
            ]
        )
        for k, image_id in enumerate(images)
    }


def adjust_by_pycolmap(model, options, config, **_):
    if isinstance(model, colmap.Mirror):
        model = model.reconstruction
    return pycolmap.create_default_bundle_adjuster(options, config, model).solve()


def distance_to_positions(path, model):
    """Root of the mean squared distance of images to their positions."""
    database = pycolmap.Database.open(path)
    places = {p.corr_data_id.id: p.position for p in database.read_all_pose_priors()}
    database.close()
    moves = [
        model.image(i).projection_center() - places[i] for i in model.reg_image_ids()
    ]
    return float(numpy.sqrt((numpy.array(moves) ** 2).sum(axis=1).mean()))


def run(name, database, device, threads, what):
    is_global = what == "--global"
    options = (
        pycolmap.GlobalPipelineOptions()
        if is_global
        else pycolmap.IncrementalPipelineOptions(
            extract_colors=False, use_prior_position=what == "--positions"
        )
    )
    options.num_threads = threads
    options.random_seed = 0
    kind = "global_mapping" if is_global else "incremental_mapping"
    report = colmap.MappingReport()
    adjust = colmap.bundle_adjustment
    with tempfile.TemporaryDirectory() as folder:
        arguments = [database, folder, folder, options]
        start = time.perf_counter()
        if name == "pycolmap":
            models = getattr(pycolmap, kind)(*arguments)
        else:
            for module in (mapper, refinement):
                is_theirs = name == "steps"
                module.bundle_adjustment = adjust_by_pycolmap if is_theirs else adjust
            models = getattr(colmap, kind)(
                *arguments, mapping_report=report, device=device
            )
        seconds = time.perf_counter() - start
    errors = [model.compute_mean_reprojection_error() for model in models.values()]
    result = {
        "database": database.stem,
        "mapper": name,
        "seconds": round(seconds, 3),
        "images": [m.num_reg_images() for m in models.values()],
        "points": [m.num_points3D() for m in models.values()],
        "observations": [m.compute_num_observations() for m in models.values()],
        "error": [round(error, 6) for error in errors],
    }
    if what == "--positions":
        result["to_positions"] = round(distance_to_positions(database, models[0]), 5)
    for work in (
        "local adjustment",
        "global adjustment",
        "rotation averaging",
        "global positioning",
    ):
        if work in report.seconds:
            result[work] = [round(report.seconds[work], 3), report.calls[work]]
    print(json.dumps(result), flush=True)


def map_of_directions(num_images):
    """A map with 2D points and no points, the points' places, and their tracks."""
    pycolmap.set_random_seed(1)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 1
    options.num_frames_per_rig = num_images
    options.num_points3D = options.num_points2D_without_point3D = 0
    model = pycolmap.synthesize_dataset(options)
    rng = numpy.random.default_rng(1)
    points = rng.uniform(-1.0, 1.0, (POINTS_PER_IMAGE * num_images, 3))
    sees = nearest(points, centers_of(model))
    observations = []
    for k, image_id in enumerate(sorted(model.images)):
        image = model.image(image_id)
        seen = numpy.flatnonzero(sees[:, k])
        pose = image.cam_from_world()
        pixels = model.camera(image.camera_id).img_from_cam(
            points[seen] @ pose.rotation.matrix().T + pose.translation
        )
        image.points2D = pycolmap.Point2DList(
            [pycolmap.Point2D(xy + rng.normal(0.0, 0.5, 2)) for xy in pixels]
        )
        numbers = numpy.arange(len(seen))
        observations.append(
            numpy.stack([seen, numpy.full(len(seen), image_id), numbers], axis=1)
        )
    rows = numpy.concatenate(observations)
    rows = rows[numpy.lexsort(rows.T[::-1])]
    return model, points, positioning.Tracks(*rows.T)


def cost_of_directions(model, options):
    """The cost of global positioning, at the scales of least cost."""
    cost = 0.0
    for image in model.images.values():
        seen = [p for p in image.points2D if p.has_point3D()]
        rays = model.camera(image.camera_id).cam_ray_from_img([p.xy for p in seen])
        directions = numpy.asarray(rays) @ image.cam_from_world().rotation.matrix()
        points = numpy.array([model.point3D(p.point3D_id).xyz for p in seen])
        away = points - image.projection_center()
        scales = (directions * away).sum(axis=1) / (away**2).sum(axis=1)
        residuals = directions - numpy.maximum(scales, 1e-5)[:, None] * away
        norms = numpy.linalg.norm(residuals, axis=1)
        size = options.loss_function_scale
        large = 2.0 * size * norms - size**2
        cost += 0.5 * numpy.where(norms <= size, norms**2, large).sum()
    return float(cost)


def distance_to_centers(model, centers):
    """Median, after the similarity of least squares."""
    moved = centers_of(model)
    middles = moved.mean(axis=0), centers.mean(axis=0)
    a, b = moved - middles[0], centers - middles[1]
    u, s, v = numpy.linalg.svd(b.T @ a)
    signs = numpy.array([1.0, 1.0, numpy.sign(numpy.linalg.det(u @ v))])
    similarity = (s * signs).sum() / (a**2).sum() * (u * signs) @ v
    return float(numpy.median(numpy.linalg.norm(a @ similarity.T - b, axis=1)))


def run_directions(num_images, device, threads):
    model, points, tracks = map_of_directions(num_images)
    centers = centers_of(model)
    options = pycolmap.GlobalPositionerOptions()
    options.random_seed = 0
    values = {"device": device, "num_threads": threads}
    for name in ("ceres_ext", "ceres_ext", "pycolmap"):
        moved = copy.deepcopy(model)
        if name == "pycolmap":
            ends = numpy.searchsorted(tracks.track, numpy.arange(len(points) + 1))
            for xyz, begin, end in zip(points, ends[:-1], ends[1:], strict=True):
                track = pycolmap.Track()
                for k in range(begin, end):
                    track.add_element(int(tracks.image[k]), int(tracks.point2d[k]))
                moved.add_point3D(xyz, track)
        start = time.perf_counter()
        if name == "pycolmap":
            pycolmap.run_global_positioning(options, pycolmap.PoseGraph(), moved)
        else:
            positioning.position(pycolmap, moved, tracks, options, values)
        seconds = time.perf_counter() - start
        result = {
            "images": num_images,
            "observations": len(tracks.track),
            "positions": name,
            "seconds": round(seconds, 3),
            "cost": cost_of_directions(moved, options),
            "to_centers": round(distance_to_centers(moved, centers), 5),
        }
        print(json.dumps(result), flush=True)


def main():
    what = sys.argv.pop(1) if sys.argv[1].startswith("--") else ""
    if what == "--directions":
        device, threads, *counts = sys.argv[1:]
        for count in counts:
            run_directions(int(count), device, int(threads))
        return
    folder, device, threads, *counts = sys.argv[1:]
    pycolmap.logging.minloglevel = 3
    for count in counts:
        makers = {}
        if count.isdigit():
            for cameras in ("shared", "own"):
                makers[f"{count}_{cameras}{what}"] = functools.partial(
                    generate,
                    num_images=int(count),
                    is_shared=cameras == "shared",
                    has_positions=what == "--positions",
                )
        else:
            makers[pathlib.Path(count).name] = functools.partial(
                make_from_model, folder=count
            )
        for name, make in makers.items():
            path = pathlib.Path(folder) / f"{name}.db"
            if not path.exists():
                make(path)
            for mapper_name in ("ceres_ext", "pycolmap", "steps", "ceres_ext"):
                run(mapper_name, path, device, int(threads), what)


if __name__ == "__main__":
    main()
