# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""ceres_ext.colmap.global_mapping against pycolmap's, on its own data sets."""

import io
import re
import shutil
import types

import mapping_test
import numpy
import pytest

from ceres_ext import colmap
from ceres_ext.colmap import positioning, rotation_averaging

pycolmap = pytest.importorskip("pycolmap")
if not hasattr(pycolmap, "GlobalPipelineOptions"):
    pytest.skip("an older pycolmap", allow_module_level=True)

synthesize = mapping_test.synthesize
assert_as_good = mapping_test.assert_as_good
bits = mapping_test.bits
GLOBAL = mapping_test.Mapper("global_mapping", pycolmap.GlobalPipelineOptions)
mapped = GLOBAL.mapped
mapped_by_pycolmap = GLOBAL.mapped_by_pycolmap


@pytest.fixture(scope="session", autouse=True)
def quiet():
    pycolmap.logging.minloglevel = 3


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return synthesize(tmp_path_factory.mktemp("shared") / "database.db", 8)


@pytest.fixture(scope="session")
def ours(shared, tmp_path_factory):
    """The folder of a map, the models, the report and its lines."""
    folder = tmp_path_factory.mktemp("ours")
    stream = io.StringIO()
    report = colmap.MappingReport(stream)
    models = mapped(shared, folder, mapping_report=report)
    return folder, models, report, stream.getvalue().splitlines()


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_map_is_as_good_as_pycolmaps(is_shared, tmp_path):
    database = synthesize(
        tmp_path / "database.db", 20, is_shared, num_points3D=150
    )
    models = mapped(database, tmp_path / "ours")
    assert models[0].num_reg_images() == 20
    assert_as_good(models, mapped_by_pycolmap(database, tmp_path / "theirs"))
    written = pycolmap.Reconstruction(tmp_path / "ours" / "0")
    assert written.num_points3D() == models[0].num_points3D()


@pytest.mark.parametrize("is_known", [True, False])
def test_rigs(is_known, tmp_path):
    path = synthesize(
        tmp_path / "database.db", 8, num_cameras_per_rig=2, num_points3D=150
    )
    if not is_known:
        database = pycolmap.Database.open(path)
        for rig in database.read_all_rigs():
            for sensor in rig.non_ref_sensors:
                rig.reset_sensor_from_rig(sensor)
            database.update_rig(rig)
        database.close()
    models = mapped(path, tmp_path / "ours")
    assert models[0].num_reg_images() == 16
    assert_as_good(models, mapped_by_pycolmap(path, tmp_path / "theirs"))
    if not is_known:
        for rig in models[0].rigs.values():
            for pose in rig.non_ref_sensors.values():
                assert numpy.isfinite(pose.translation).all()


def test_several_models(tmp_path):
    path = synthesize(tmp_path / "database.db", 8, num_scenes=2, num_points3D=100)
    models = mapped(path, tmp_path / "ours")
    assert [model.num_reg_images() for model in models.values()] == [8, 8]
    assert [model.num_images() for model in models.values()] == [8, 8]
    first, second = (
        {image.name for image in model.images.values()} for model in models.values()
    )
    assert not first & second
    assert len(mapped(path, tmp_path / "one", {"multiple_models": False})) == 1
    assert mapped(path, tmp_path / "none", {"min_model_size": 9}) == {}


def test_the_command_has_the_same_bits_with_one_thread(shared, ours, tmp_path):
    folder, models, _, _ = ours
    done = mapping_test.run(
        mapping_test.COMMAND,
        "--mapper=global",
        f"--database_path={shared}",
        f"--image_path={shared.parent}",
        f"--output_path={tmp_path / 'map'}",
        f"--html={tmp_path / 'map.html'}",
        "--device=HOST",
        "--num_threads=1",
        "--option=mapper.ba_num_iterations=3",
    )
    assert done.returncode == 0, done.stderr
    assert bits(tmp_path / "map" / "0") == bits(folder / "0")
    assert re.search(r"model 0: 8 images, \d+ points, 0\.\d+ px", done.stdout)
    assert "global positioning" in done.stdout
    assert "positions: 8 images" in done.stderr
    assert '"positions"' in (tmp_path / "map.html").read_text()


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--mapper=global", "--resume"], "--resume: --mapper global does not have it"),
        (
            ["--mapper=global", "--option=mapper.init_min_tri_angle=8"],
            "a field of pycolmap.GlobalPipelineOptions",
        ),
    ],
)
def test_wrong_arguments_of_the_command(arguments, message, shared, tmp_path):
    done = mapping_test.run(
        mapping_test.COMMAND,
        *arguments,
        f"--database_path={shared}",
        f"--image_path={shared.parent}",
        f"--output_path={tmp_path / 'map'}",
    )
    assert done.returncode == 2
    assert message in done.stderr


def test_the_report(ours):
    _, models, report, lines = ours
    assert report.num_images == 8
    kinds = [stage.kind for stage in report.stages]
    assert kinds[0] == "positions"
    assert kinds[-1] == "model"
    assert set(kinds[1:-1]) == {"global"}
    assert report.stages[-1].error == models[0].compute_mean_reprojection_error()
    assert 0 < report.optimization_seconds < sum(report.seconds.values())
    for work in ("rotation averaging", "global positioning", "global adjustment"):
        assert report.calls[work] >= 1
    assert "calibrate_view_graph" in report.notes[0]
    assert all(re.match(r" *\d+\.\d\d s  ", line) for line in lines)
    assert "model 0 is complete: 8 images" in lines[-1]


def test_a_run_is_stopped(shared, tmp_path):
    token = pycolmap.CancellationToken()
    calls = []

    def stop():
        calls.append(0)
        token.cancel()

    report = colmap.MappingReport()
    models = mapped(
        shared,
        tmp_path / "map",
        model_update_callback=stop,
        cancellation_token=token,
        mapping_report=report,
    )
    assert len(calls) == 1
    assert "global adjustment" not in report.calls
    assert models[0].num_reg_images() == 8
    assert (tmp_path / "map" / "0" / "images.bin").exists()


@pytest.mark.parametrize("content", [b"", b"not a database" * 100])
def test_a_database_of_another_kind(content, tmp_path):
    path = tmp_path / "database.db"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected a database of COLMAP, found"):
        mapped(path, tmp_path / "map")


def test_a_database_that_is_cut_off(shared, tmp_path):
    path = tmp_path / "database.db"
    path.write_bytes(shared.read_bytes()[: shared.stat().st_size // 2])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        mapped(path, tmp_path / "map")


def test_a_database_without_matches(tmp_path):
    path = tmp_path / "database.db"
    pycolmap.Database.open(path).close()
    with pytest.raises(ValueError, match="verified matches, found none"):
        mapped(path, tmp_path / "map")


def test_images_without_points(shared, tmp_path):
    report = colmap.MappingReport()
    fields = {"mapper__track_max_num_views_per_track": 3}
    assert mapped(shared, tmp_path / "map", fields, mapping_report=report) == {}
    assert report.notes[-1] == "No positions were found for these images."


def test_wrong_arguments(shared, tmp_path):
    with pytest.raises(FileNotFoundError, match="database_path: expected a file"):
        mapped(tmp_path / "none.db", tmp_path / "map")
    with pytest.raises(TypeError, match=r"expected a pycolmap\.GlobalPipelineOptions"):
        colmap.global_mapping(shared, tmp_path, tmp_path / "map", [])
    with pytest.raises(ValueError, match="use_gravity: expected False, found True"):
        mapped(
            shared, tmp_path / "map", {"mapper__rotation_averaging__use_gravity": True}
        )
    with pytest.raises((AttributeError, TypeError), match="devise"):
        mapped(shared, tmp_path / "map", devise="HOST")


def random_rotations(rng, size, sigma):
    vectors = sigma * rng.normal(size=(size, 3))
    angles = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return numpy.hstack(
        [vectors / angles * numpy.sin(angles / 2), numpy.cos(angles / 2)]
    )


@pytest.mark.parametrize("weights", ["GEMAN_MCCLURE", "HALF_NORM"])
def test_rotations_with_outliers(weights):
    """30 rotations, 250 measured pairs with errors of a degree; every tenth is
    wrong. The error of the average is about a degree over the root of the pairs of
    each."""
    rng = numpy.random.default_rng(0)
    multiply, invert = rotation_averaging.multiply, rotation_averaging.invert
    true = random_rotations(rng, 30, 2.0)
    first, second = numpy.triu_indices(30, 1)
    chosen = numpy.sort(rng.permutation(len(first))[:250])
    first, second = first[chosen], second[chosen]
    measured = multiply(true[second], invert(true[first]))
    measured = multiply(random_rotations(rng, 250, numpy.radians(0.6)), measured)
    measured[::10] = random_rotations(rng, 25, 2.0)
    matches = numpy.full(250, 100)
    options = pycolmap.RotationEstimatorOptions()
    options.weight_type = getattr(pycolmap.RotationWeightType, weights)
    found = rotation_averaging._span(first, second, measured, matches, 30)
    rotation_averaging._solve(found, first, second, measured, matches, options, {})
    # The tree's root is the identity.
    difference = multiply(invert(found), true)
    errors = rotation_averaging._angle(multiply(invert(difference[0]), difference))
    assert numpy.degrees(errors).max() < 1.5


def test_a_tree_avoids_pairs_that_disagree():
    """All pairs of the first of eight images are wrong; the others have no errors."""
    rng = numpy.random.default_rng(1)
    multiply, invert = rotation_averaging.multiply, rotation_averaging.invert
    true = random_rotations(rng, 8, 2.0)
    first, second = numpy.triu_indices(8, 1)
    measured = multiply(true[second], invert(true[first]))
    measured[first == 0] = random_rotations(rng, 7, 2.0)
    found = rotation_averaging._span(first, second, measured, numpy.full(28, 100), 8)
    difference = multiply(invert(found), true)[1:]
    errors = rotation_averaging._angle(multiply(invert(difference[0]), difference))
    assert errors.max() < 1e-6


def test_components():
    labels = rotation_averaging.connected(
        numpy.array([5, 3, 1, 8]), numpy.array([3, 1, 7, 9]), 10
    )
    assert labels.tolist() == [0, 1, 2, 1, 4, 1, 6, 1, 8, 8]
    path = numpy.random.default_rng(0).permutation(1000)
    labels = rotation_averaging.connected(path[:-1], path[1:], 1000)
    assert (labels == 0).all()


class Graph:
    """Images 1 to 4 with points of the same numbers; those of 1 and 2 have a second
    match, 25 pixels away."""

    def extract_matches_between_images(self, first, second):
        matches = [[0, 0], [1, 1], [2, 2]]
        if (first, second) == (1, 2):
            matches += [[3, 2]]
        if (first, second) == (3, 4):
            matches = [[0, 0]]
        return numpy.array(matches, numpy.uint32)


@pytest.mark.parametrize("threshold, num_tracks", [(10.0, 2), (100.0, 3)])
def test_tracks(threshold, num_tracks):
    points = [types.SimpleNamespace(xy=numpy.array([25.0 * k, 0.0])) for k in range(5)]
    image = types.SimpleNamespace(num_points2D=lambda: 5, points2D=points)
    cache = types.SimpleNamespace(
        correspondence_graph=Graph(), image=lambda image_id: image
    )
    none = numpy.zeros((0, 4))
    pairs = rotation_averaging.Pairs(
        numpy.array([1, 2, 3]), numpy.array([2, 3, 4]), none, none
    )
    options = pycolmap.GlobalMapperOptions()
    options.track_intra_image_consistency_threshold = threshold
    tracks = positioning.find_tracks(cache, pairs, options)
    assert tracks.track.max() + 1 == num_tracks
    assert tracks.image[tracks.track == 0].tolist() == [1, 2, 3, 4]
    assert tracks.point2d[tracks.track == 1].tolist() == [1, 1, 1]
    options.track_min_num_views_per_track = 4
    assert set(positioning.find_tracks(cache, pairs, options).track) == {0}
    options.track_min_num_views_per_track = 2
    options.keep_max_num_tracks = 1
    kept = positioning.find_tracks(cache, pairs, options)
    assert set(kept.track) == {0}
    options.keep_max_num_tracks = 100
    options.track_required_tracks_per_view = 0
    # The longest has all images.
    kept = positioning.find_tracks(cache, pairs, options)
    assert len(kept.track) == 4


def test_an_image_with_wrong_rotations(shared, tmp_path):
    """A map is not worse for an image whose rotations are all wrong."""
    path = tmp_path / "database.db"
    shutil.copy(shared, path)
    rng = numpy.random.default_rng(0)
    database = pycolmap.Database.open(path)
    pairs, geometries = database.read_two_view_geometries()
    wrong = pycolmap.pair_id_to_image_pair(pairs[0])[0]
    for pair, geometry in zip(pairs, geometries, strict=True):
        ends = pycolmap.pair_id_to_image_pair(pair)
        if wrong in ends:
            geometry.cam2_from_cam1 = pycolmap.Rigid3d(
                pycolmap.Rotation3d(random_rotations(rng, 1, 2.0)[0]),
                numpy.array([1.0, 0.0, 0.0]),
            )
            database.update_two_view_geometry(*ends, geometry)
    database.close()
    models = mapped(path, tmp_path / "ours")
    assert_as_good(models, mapped_by_pycolmap(path, tmp_path / "theirs"))
    assert models[0].image(wrong).num_points3D < 10


@pytest.mark.parametrize("kind", ["CALIBRATED", "UNCALIBRATED", "PLANAR"])
def test_pairs_without_a_matrix(kind, shared, tmp_path):
    """Their rotations are those of the matches."""
    database = pycolmap.Database.open(shared)
    cache = pycolmap.DatabaseCache.create(database, pycolmap.DatabaseCacheOptions())
    expected = rotation_averaging.read_pairs(pycolmap, database, cache, True, 1)
    pixels = [
        database.read_keypoints(image_id)[:, :2].astype(float)
        for image_id in (expected.first[0], expected.second[0])
    ]
    geometry = cache.correspondence_graph.extract_two_view_geometry(
        expected.first[0], expected.second[0], True
    )
    geometry.E = geometry.F = geometry.H = None
    geometry.config = getattr(pycolmap.TwoViewGeometryConfiguration, kind)
    cameras = tuple(cache.cameras.values())
    assert rotation_averaging._complete(pycolmap, geometry, 2 * cameras, pixels)
    name = {"CALIBRATED": "E", "UNCALIBRATED": "F", "PLANAR": "H"}[kind]
    assert numpy.isfinite(getattr(geometry, name)).all()
    if kind != "PLANAR":
        assert pycolmap.estimate_two_view_geometry_pose(
            cameras[0], pixels[0], cameras[0], pixels[1], geometry
        )
        angle = rotation_averaging._angle(
            rotation_averaging.multiply(
                rotation_averaging.invert(expected.rotations[0]),
                numpy.array(geometry.cam2_from_cam1.rotation.quat),
            )
        )
        assert numpy.degrees(angle) < 1.0
    geometry.inlier_matches = numpy.zeros((0, 2), numpy.uint32)
    assert not rotation_averaging._complete(pycolmap, geometry, 2 * cameras, pixels)
