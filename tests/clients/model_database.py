# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""model_database.py MODEL DATABASE

Fills an empty database of COLMAP with the cameras, images, keypoints and verified
matches of a model in text, as if they had been extracted and matched, so that
"colmap mapper" can map them. Matches are the pairs of observations of a point.
"""

import array
import collections
import itertools
import pathlib
import sqlite3
import sys

MODELS = {"SIMPLE_PINHOLE": 0, "PINHOLE": 1, "SIMPLE_RADIAL": 2, "RADIAL": 3,
          "OPENCV": 4, "OPENCV_FISHEYE": 5, "FULL_OPENCV": 6}
MAX_IMAGES = 2147483647  # kMaxNumImages: the number of a pair
CALIBRATED = 2


def lines(path):
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            yield line.split()


def blob(typecode, values):
    return array.array(typecode, values).tobytes()


def main(model, database):
    model = pathlib.Path(model)
    connection = sqlite3.connect(database)
    for camera, name, width, height, *params in lines(model / "cameras.txt"):
        connection.execute(
            "INSERT INTO cameras VALUES (?, ?, ?, ?, ?, 1)",
            (int(camera), MODELS[name], int(width), int(height),
             blob("d", map(float, params))))
    seen_in = collections.defaultdict(list)  # of a point: image, keypoint
    of_images = list(lines(model / "images.txt"))
    for image, points in zip(of_images[::2], of_images[1::2], strict=True):
        number, camera, name = int(image[0]), int(image[8]), image[9]
        connection.execute(
            "INSERT INTO images (image_id, name, camera_id) VALUES (?, ?, ?)",
            (number, name, camera))
        keypoints = list(zip(points[::3], points[1::3], points[2::3], strict=True))
        connection.execute(
            "INSERT INTO keypoints VALUES (?, ?, 2, ?)",
            (number, len(keypoints),
             blob("f", (float(v) for x, y, _ in keypoints for v in (x, y)))))
        for index, (_, _, point) in enumerate(keypoints):
            if point != "-1":
                seen_in[point].append((number, index))
    matches = collections.defaultdict(list)  # of a pair of images
    for track in seen_in.values():
        for (i, a), (j, b) in itertools.combinations(sorted(track), 2):
            if i != j:
                matches[i, j] += (a, b)
    for (i, j), indices in matches.items():
        pair = MAX_IMAGES * i + j
        rows = len(indices) // 2
        connection.execute("INSERT INTO matches VALUES (?, ?, 2, ?)",
                           (pair, rows, blob("I", indices)))
        connection.execute(
            "INSERT INTO two_view_geometries (pair_id, rows, cols, data, config) "
            "VALUES (?, ?, 2, ?, ?)", (pair, rows, blob("I", indices), CALIBRATED))
    connection.commit()
    print(f"{len(of_images) // 2} images, {len(matches)} pairs of images")


main(*sys.argv[1:])
