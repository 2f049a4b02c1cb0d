# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Refines a model of COLMAP, as text, with a RADIAL camera for each image.

python examples/colmap_model.py FOLDER
"""

import pathlib
import sys

import numpy

import ceres_ext


def lines(path):
    text = path.read_text().splitlines()
    return [line.split() for line in text if not line.startswith("#")]


def angle_axis(quaternions):
    """Rotation vectors of unit quaternions w, x, y, z other than the identity."""
    quaternions = quaternions * numpy.where(quaternions[:, :1] < 0, -1, 1)
    sine = numpy.linalg.norm(quaternions[:, 1:], axis=1, keepdims=True)
    angle = 2 * numpy.arctan2(sine, quaternions[:, :1])
    return quaternions[:, 1:] * (angle / sine)


def read_model(folder):
    """The model as a problem of BAL, whose cameras look along -z, with y up."""
    intrinsics = {row[0]: row for row in lines(folder / "cameras.txt")}
    images = lines(folder / "images.txt")
    points = lines(folder / "points3D.txt")
    point_index = {row[0]: i for i, row in enumerate(points)}
    if len(intrinsics) != len(images) // 2:
        sys.exit("expected a camera for each image")
    cameras, seen = [], []
    for i, (pose, keypoints) in enumerate(zip(images[::2], images[1::2])):
        w, x, y, z, *translation = map(float, pose[1:8])
        model, _, _, f, cx, cy, k1, k2 = intrinsics[pose[8]][1:]
        if model != "RADIAL":
            sys.exit(f"expected RADIAL cameras, found {model}")
        # Half a turn about x.
        (rotation,) = angle_axis(numpy.array([[-x, w, -z, y]]))
        translation = numpy.array(translation) * [1, -1, -1]
        cameras.append([*rotation, *translation, float(f), float(k1), float(k2)])
        for u, v, point in zip(*[iter(keypoints)] * 3):
            if point != "-1":
                offset = [float(u) - float(cx), float(cy) - float(v)]
                seen.append((i, point_index[point], *offset))
    return ceres_ext.BalProblem(
        numpy.array(cameras),
        numpy.array([row[1:4] for row in points], float),
        numpy.array([row[0] for row in seen], numpy.int32),
        numpy.array([row[1] for row in seen], numpy.int32),
        numpy.array([row[2:] for row in seen]),
    )


def main():
    bal = read_model(pathlib.Path(sys.argv[1]))
    problem = ceres_ext.ArrayProblem()
    cameras = problem.add_parameters(bal.cameras)
    points = problem.add_parameters(bal.points)
    problem.add_residuals(
        "BalReprojectionError",
        bal.observations,
        [(cameras, bal.camera_index), (points, bal.point_index)],
    )

    def mean_error():
        residuals = ceres_ext.evaluate(problem).residuals[0]
        return numpy.mean(numpy.linalg.norm(residuals, axis=1))

    before = mean_error()
    summary = ceres_ext.solve(
        problem, preconditioner_type="SCHUR_JACOBI", max_num_iterations=50
    )
    print(summary.brief_report())
    print(f"mean reprojection error {before:.3f} -> {mean_error():.3f} pixels")


main()
