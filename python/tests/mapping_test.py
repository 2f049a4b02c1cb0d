# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""ceres_ext.colmap.incremental_mapping against pycolmap's, on its own data sets."""

import functools
import io
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys

import numpy
import pytest

from ceres_ext import colmap

pycolmap = pytest.importorskip("pycolmap")
if not hasattr(pycolmap, "IncrementalPipelineStatus"):
    pytest.skip("an older pycolmap", allow_module_level=True)

# pycolmap's error depends on its rounding, which depends on its threads.
ERROR_TOLERANCE = 1e-3  # pixels
FILES = ["cameras.bin", "frames.bin", "images.bin", "points3D.bin", "rigs.bin"]


@pytest.fixture(scope="session", autouse=True)
def quiet():
    pycolmap.logging.minloglevel = 2


def synthesize(path, num_images=12, is_shared=True, num_scenes=1, **fields):
    """A database of pycolmap's generator with noise of half a pixel. Images share
    a camera or have their own. Scenes are not connected."""
    pycolmap.set_random_seed(3)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 1 if is_shared else num_images
    options.num_frames_per_rig = num_images if is_shared else 1
    options.num_points3D = 250
    options.inlier_match_ratio = 0.9
    for name, value in fields.items():
        setattr(options, name, value)
    noise = pycolmap.SyntheticNoiseOptions()
    noise.point2D_stddev = 0.5
    database = pycolmap.Database.open(path)
    for _ in range(num_scenes):
        model = pycolmap.synthesize_dataset(options, database)
        pycolmap.synthesize_noise(noise, model, database)
    database.close()
    return path


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    return synthesize(tmp_path_factory.mktemp("shared") / "database.db")


@pytest.fixture(scope="session")
def ours(shared, tmp_path_factory):
    """The folder of a map without interruptions, with its report."""
    folder = tmp_path_factory.mktemp("ours")
    report = colmap.MappingReport()
    models = mapped(shared, folder, mapping_report=report, checkpoint_frames=4)
    return folder, models, report


class Mapper:
    """The mapper of that name, of pycolmap and of this library."""

    def __init__(self, name, options, **fields):
        self.name = name
        self.kind = options
        self.fields = fields

    def make_options(self, **fields):
        """fields: a__b is the field b of the field a."""
        options = self.kind()
        options.num_threads = 2
        options.random_seed = 0
        for path, value in {**self.fields, **fields}.items():
            *parents, name = path.split("__")
            setattr(functools.reduce(getattr, parents, options), name, value)
        return options

    def mapped(self, database, output, fields=None, **arguments):
        options = self.make_options(**(fields or {}))
        return getattr(colmap, self.name)(
            database, database.parent, output, options, device="HOST", **arguments
        )

    def mapped_by_pycolmap(self, database, output, **fields):
        output.mkdir()
        return getattr(pycolmap, self.name)(
            database, database.parent, output, self.make_options(**fields)
        )


INCREMENTAL = Mapper(
    "incremental_mapping", pycolmap.IncrementalPipelineOptions, extract_colors=False
)
make_options = INCREMENTAL.make_options
mapped = INCREMENTAL.mapped
mapped_by_pycolmap = INCREMENTAL.mapped_by_pycolmap


def bits(folder):
    return [(folder / name).read_bytes() for name in FILES]


def assert_as_good(models, others):
    assert len(models) == len(others)
    for index, other in others.items():
        model = models[index]
        assert model.num_reg_images() >= other.num_reg_images()
        assert (
            model.compute_mean_reprojection_error()
            <= other.compute_mean_reprojection_error() + ERROR_TOLERANCE
        )
        assert model.compute_num_observations() >= (
            0.999 * other.compute_num_observations()
        )


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_map_is_as_good_as_pycolmaps(is_shared, tmp_path):
    database = synthesize(tmp_path / "database.db", 30, is_shared)
    calls = []
    models = mapped(
        database,
        tmp_path / "ours",
        initial_image_pair_callback=lambda: calls.append("pair"),
        next_image_callback=lambda: calls.append("next"),
    )
    assert models[0].num_reg_images() == 30
    assert calls == ["pair"] + 28 * ["next"]
    assert_as_good(models, mapped_by_pycolmap(database, tmp_path / "theirs"))
    assert bits(tmp_path / "ours" / "0")
    written = pycolmap.Reconstruction(tmp_path / "ours" / "0")
    assert written.num_points3D() == models[0].num_points3D()


def test_bounds_and_priors_of_cameras(shared, tmp_path):
    """Priors are at the camera of the database, not at those that were adjusted."""
    (camera,) = pycolmap.Database.open(shared).read_all_cameras()
    models = mapped(
        shared,
        tmp_path / "priors",
        focal_length_prior_weight=1e7,
        extra_params_prior_weight=1e9,
    )
    assert models[0].num_reg_images() == 12
    assert models[0].camera(1).params == pytest.approx(camera.params, rel=1e-4)
    side = max(camera.width, camera.height)
    limit = 0.99 * camera.params[0] / side
    models = mapped(
        shared, tmp_path / "bounds", bound_intrinsics=True, max_focal_length_ratio=limit
    )
    assert models[0].camera(1).params[0] <= limit * side
    arguments = [
        f"--database_path={shared}",
        f"--image_path={shared.parent}",
        f"--output_path={tmp_path / 'command'}",
        "--device=HOST",
        "--option=extract_colors=false",
        "--bound_intrinsics",
        f"--max_focal_length_ratio={float(limit)!r}",
    ]
    assert run(COMMAND, *arguments).returncode == 0
    assert bits(tmp_path / "command" / "0") == bits(tmp_path / "bounds" / "0")
    message = "max_extra_param: expected a number above 0"
    with pytest.raises(ValueError, match=message):
        mapped(shared, tmp_path / "none", max_extra_param=0.0)
    done = run(COMMAND, *arguments, "--max_extra_param=0")
    assert done.returncode == 2
    assert message in done.stderr


def test_rigs(tmp_path):
    database = synthesize(
        tmp_path / "database.db", 8, num_cameras_per_rig=2, num_points3D=200
    )
    models = mapped(database, tmp_path / "ours")
    assert models[0].num_reg_images() == 16
    assert_as_good(models, mapped_by_pycolmap(database, tmp_path / "theirs"))


def test_global_adjustments_by_pycolmap(tmp_path):
    database = synthesize(tmp_path / "database.db")
    fields = {"mapper": pycolmap.IncrementalMapperOptions()}
    fields["mapper"].ba_global_ignore_redundant_points3D = True
    report = colmap.MappingReport()
    models = mapped(database, tmp_path / "ours", fields, mapping_report=report)
    assert "global adjustment" not in report.calls
    assert report.calls["adjustment by pycolmap"] > 2
    assert models[0].num_reg_images() == 12
    assert_as_good(models, mapped_by_pycolmap(database, tmp_path / "theirs", **fields))


def test_a_given_pair(shared, tmp_path):
    fields = {"init_image_id1": 2, "init_image_id2": 9}
    report = colmap.MappingReport()
    models = mapped(shared, tmp_path / "map", fields, mapping_report=report)
    assert report.stages[0].text == "images 2 and 9"
    assert models[0].num_reg_images() == 12
    fields["init_image_id2"] = 99
    assert mapped(shared, tmp_path / "none", fields) == {}


def test_several_models(tmp_path):
    database = synthesize(tmp_path / "database.db", 10, num_scenes=2)
    models = mapped(database, tmp_path / "ours", {"min_model_size": 5})
    assert [model.num_reg_images() for model in models.values()] == [10, 10]
    others = mapped_by_pycolmap(database, tmp_path / "theirs", min_model_size=5)
    assert len(others) == 2
    assert sorted(os.listdir(tmp_path / "ours")) == ["0", "1"]


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_model_is_continued(is_fixed, shared, ours, tmp_path):
    folder, _, _ = ours
    part = pycolmap.Reconstruction(folder / "0")
    for frame_id in part.reg_frame_ids()[6:]:
        part.deregister_frame(frame_id)
    (tmp_path / "part").mkdir()
    part.write(tmp_path / "part")
    models = mapped(
        shared,
        tmp_path / "whole",
        {"fix_existing_frames": is_fixed},
        input_path=tmp_path / "part",
    )
    assert list(models) == [0]
    if is_fixed:
        for image_id in part.reg_image_ids():
            assert models[0].image(image_id).projection_center() == pytest.approx(
                part.image(image_id).projection_center(), abs=1e-9
            )
    assert models[0].num_reg_images() == 12
    assert (tmp_path / "whole" / "images.bin").exists()


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


COMMAND = "import sys; from ceres_ext.colmap.map_command import main; sys.exit(main())"


def test_the_command_has_the_same_bits_with_one_thread(shared, ours, tmp_path):
    folder, models, _ = ours
    done = run(
        COMMAND,
        f"--database_path={shared}",
        f"--image_path={shared.parent}",
        f"--output_path={tmp_path / 'map'}",
        f"--html={tmp_path / 'map.html'}",
        "--device=HOST",
        "--num_threads=1",
        "--checkpoint_frames=4",
        "--option=extract_colors=false",
    )
    assert done.returncode == 0, done.stderr
    assert bits(tmp_path / "map" / "0") == bits(folder / "0")
    assert re.search(r"model 0: 12 images, \d+ points, 0\.\d+ px", done.stdout)
    assert "local adjustment" in done.stdout
    assert "image " in done.stderr
    assert "global refinement" in done.stderr
    page = (tmp_path / "map.html").read_text()
    assert not re.search("https?:|src=|href=", page)
    data = json.loads(re.search("const data = (.*);\n", page).group(1))
    assert len(data["maps"][0]["images"]) == 12
    assert len(data["maps"][0]["points"]) == models[0].num_points3D()
    assert data["stages"][-1]["num_images"] == 12


KILLED = """
import os, pathlib, sys
import pycolmap
from ceres_ext import colmap

pycolmap.logging.minloglevel = 2
database, output = map(pathlib.Path, sys.argv[1:])
options = pycolmap.IncrementalPipelineOptions()
options.extract_colors = False
calls = []

def count():
    calls.append(0)
    if len(calls) == 6:  # Images 3 to 8; the last checkpoint has 4.
        os._exit(9)

colmap.incremental_mapping(
    database, database.parent, output, options, next_image_callback=count,
    checkpoint_frames=4, device="HOST",
)
"""


def test_a_run_that_was_killed_is_resumed_with_the_same_bits(shared, ours, tmp_path):
    folder, _, _ = ours
    output = tmp_path / "map"
    assert run(KILLED, shared, output).returncode == 9
    assert (output / "checkpoint" / "state.json").exists()
    with pytest.raises(ValueError, match="have changed since this checkpoint"):
        mapped(
            shared,
            output,
            {"ba_local_max_refinements": 1},
            resume=True,
            checkpoint_frames=4,
        )
    report = colmap.MappingReport()
    mapped(shared, output, resume=True, checkpoint_frames=4, mapping_report=report)
    assert "Resumed from a checkpoint with" in report.notes[0]
    assert report.stages[0].num_images > 2
    assert bits(output / "0") == bits(folder / "0")
    assert not (output / "checkpoint").exists()


def test_a_run_is_stopped(shared, tmp_path):
    token = pycolmap.CancellationToken()
    calls = []

    def stop():
        calls.append(0)
        if len(calls) == 3:
            token.cancel()

    models = mapped(
        shared, tmp_path / "map", next_image_callback=stop, cancellation_token=token
    )
    assert models[0].num_reg_images() == 5
    assert (tmp_path / "map" / "0" / "images.bin").exists()


def test_the_report(ours):
    _, models, report = ours
    assert report.num_images == 12
    assert [s.num_images for s in report.stages if s.kind == "image"] == list(
        range(3, 13)
    )
    assert report.stages[-1].kind == "model"
    assert report.stages[-1].error == models[0].compute_mean_reprojection_error()
    assert 0 < report.optimization_seconds < sum(report.seconds.values())
    assert report.calls["local adjustment"] >= 10
    assert "checkpoint with 8 frames" in report.notes


def test_lines_of_the_report(shared, tmp_path):
    stream = io.StringIO()
    options = {"max_runtime_seconds": -1}
    report = colmap.MappingReport(stream)
    mapped(shared, tmp_path / "map", options, mapping_report=report)
    lines = stream.getvalue().splitlines()
    assert all(re.match(r" *\d+\.\d\d s  ", line) for line in lines)
    assert "initial pair" not in lines[-1]
    assert "model 0 is complete: 12 images" in lines[-1]


def make_database(path, statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "found an empty file"),
        (b"not a database" * 100, "found another or a damaged file"),
        (None, "found one without the table cameras"),
    ],
)
def test_a_database_of_another_kind(content, message, tmp_path):
    path = tmp_path / "database.db"
    if content is None:
        make_database(path, ["CREATE TABLE words (word TEXT)"])
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        mapped(path, tmp_path / "map")
    done = run(
        COMMAND,
        f"--database_path={path}",
        f"--image_path={tmp_path}",
        f"--output_path={tmp_path / 'map'}",
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


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


def test_wrong_arguments(shared, tmp_path):
    with pytest.raises(FileNotFoundError, match="database_path: expected a file"):
        mapped(tmp_path / "none.db", tmp_path / "map")
    with pytest.raises(FileNotFoundError, match="image_path: expected a folder"):
        colmap.incremental_mapping(shared, tmp_path / "none", tmp_path / "map")
    with pytest.raises(TypeError, match="options: expected"):
        colmap.incremental_mapping(shared, tmp_path, tmp_path / "map", [])
    with pytest.raises((AttributeError, TypeError), match="devise"):
        mapped(shared, tmp_path / "map", devise="HOST")
    with pytest.raises(ValueError, match="pose priors, found none"):
        mapped(shared, tmp_path / "map", {"use_prior_position": True})
    done = run(
        COMMAND,
        f"--database_path={shared}",
        f"--image_path={tmp_path}",
        f"--output_path={tmp_path / 'map'}",
        "--option=mapper.init_min_tri_angel=8",
    )
    assert done.returncode == 2
    assert "--option mapper.init_min_tri_angel=8: expected NAME=VALUE" in done.stderr


def test_an_older_pycolmap(shared, tmp_path, monkeypatch):
    monkeypatch.delattr(pycolmap, "IncrementalPipelineStatus")
    with pytest.raises(ImportError, match="expected version 4.2 or newer, found"):
        mapped(shared, tmp_path / "map")


def local_config(model, size=4):
    """Some images, and a point that another image sees too."""
    config = pycolmap.BundleAdjustmentConfig()
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.THREE_POINTS)
    images = sorted(model.reg_image_ids())[:size]
    for image_id in images:
        config.add_image(image_id)
    for camera_id in model.cameras:
        config.set_constant_cam_intrinsics(camera_id)
    for point_id in sorted(model.point3D_ids())[::5]:
        config.add_variable_point(point_id)
    return config, images


class NoMirror:
    """Memory of a pycolmap whose layout is unknown."""

    def __init__(self, reconstruction):
        pass

    def read(self, images, added):
        return None

    def forget(self):
        pass


@pytest.mark.parametrize("is_layout_known", [True, False])
def test_a_mirror_adjusts_as_the_whole_does(is_layout_known, ours, monkeypatch):
    if not is_layout_known:
        monkeypatch.setattr("ceres_ext.colmap.mirror._ColmapMirror", NoMirror)
    folder, _, _ = ours
    whole, part = (pycolmap.Reconstruction(folder / "0") for _ in range(2))
    start = pycolmap.Reconstruction(folder / "0")
    rng = numpy.random.default_rng(0)
    config, images = local_config(whole)
    for image_id in images:
        change = rng.normal(size=3) * 1e-2
        for model in (whole, part):
            frame = model.frame(model.image(image_id).frame_id)
            frame.rig_from_world.translation += change
    options = pycolmap.BundleAdjustmentOptions()
    given = {"print_summary": False, "device": "HOST", "num_threads": 1}
    mirror = colmap.Mirror(part)
    summaries = [
        colmap.bundle_adjustment(model, options, config, **given)
        for model in (whole, mirror)
    ]
    assert summaries[1].num_residuals == summaries[0].num_residuals
    assert summaries[1].solve.initial_cost == pytest.approx(
        summaries[0].solve.initial_cost, rel=1e-12
    )
    # Sums have another order: the ends differ by the tolerance of the solve.
    assert summaries[1].solve.final_cost == pytest.approx(
        summaries[0].solve.final_cost, rel=1e-6
    )
    for image_id in images:
        assert part.image(image_id).cam_from_world().matrix() == pytest.approx(
            whole.image(image_id).cam_from_world().matrix(), abs=1e-4
        )
    varied = set(config.variable_points)
    moved = 0
    for point_id, point in part.points3D.items():
        other = whole.point3D(point_id)
        assert point.xyz == pytest.approx(other.xyz, abs=1e-3)
        is_same = (point.xyz == start.point3D(point_id).xyz).all()
        moved += not is_same
        assert is_same or point_id in varied
    # Three are constant for the gauge.
    assert len(varied) - 3 <= moved <= len(varied)
    for image_id in set(part.reg_image_ids()) - set(images):
        assert (
            part.image(image_id).cam_from_world().matrix()
            == start.image(image_id).cam_from_world().matrix()
        ).all()


def read_files(model, folder):
    """A model as pycolmap writes and reads it."""
    folder.mkdir(exist_ok=True)
    model.write_binary(folder)
    return colmap.read(folder)


def assert_is_fresh(mirror, config, folder):
    """A mirror reads what pycolmap has."""
    found, partly_seen = mirror._read(config)
    fresh = read_files(mirror.reconstruction, folder)
    point_at = {point_id: k for k, point_id in enumerate(fresh.point_ids.tolist())}
    image_at = {image_id: k for k, image_id in enumerate(fresh.image_ids.tolist())}
    camera_at = {camera_id: k for k, camera_id in enumerate(fresh.camera_ids)}
    assert set(config.images) <= set(found.image_ids.tolist())
    added = set(config.variable_points) | set(config.constant_points)
    assert added <= set(found.point_ids.tolist())
    numbers = [point_at[i] for i in found.point_ids.tolist()]
    assert (found.points == fresh.points[numbers]).all()
    assert (found.colors == fresh.colors[numbers]).all()
    assert (found.errors == fresh.errors[numbers]).all()
    numbers = [camera_at[i] for i in found.camera_ids]
    assert (found.camera_params == fresh.camera_params[numbers]).all()
    assert (found.camera_sizes == fresh.camera_sizes[numbers]).all()
    assert found.camera_models == [fresh.camera_models[k] for k in numbers]
    numbers = [image_at[i] for i in found.image_ids.tolist()]
    assert (found.image_poses == fresh.image_poses[numbers]).all()
    assert found.image_names == [fresh.image_names[k] for k in numbers]
    num_seen = numpy.zeros(len(found.point_ids), int)
    for k, image_id in enumerate(found.image_ids.tolist()):
        here = slice(*found.points2d_begin[k : k + 2])
        seen = found.point_index[here]
        num_seen[seen] += 1
        begin, end = fresh.points2d_begin[numbers[k] : numbers[k] + 2]
        points = fresh.point_index[begin:end]
        ids = numpy.where(points >= 0, fresh.point_ids[points], -1)
        is_seen = ids >= 0
        if image_id not in config.images:
            is_seen &= numpy.isin(ids, sorted(added))
        assert (found.point_ids[seen] == ids[is_seen]).all()
        assert (found.points2d[here] == fresh.points2d[begin:end][is_seen]).all()
    lengths = numpy.bincount(fresh.point_index[fresh.point_index >= 0])
    lengths = lengths[[point_at[i] for i in found.point_ids.tolist()]]
    assert (partly_seen == (num_seen < lengths)).all()


@pytest.fixture
def fresh_mirrors(monkeypatch, tmp_path):
    """Each mirror is compared with its reconstruction before and after each call.
    Returns the number of calls."""
    calls = []

    def adjusted(mirror, options, config, **values):
        assert_is_fresh(mirror, config, tmp_path / "fresh")
        summary = colmap.bundle_adjustment(mirror, options, config, **values)
        assert_is_fresh(mirror, config, tmp_path / "fresh")
        calls.append(len(config.images))
        return summary

    for module in ("mapper", "refinement", "position_priors"):
        monkeypatch.setattr(f"ceres_ext.colmap.{module}.bundle_adjustment", adjusted)
    return calls


@pytest.mark.parametrize("num_cameras_per_rig", [1, 2])
def test_mirrors_are_never_stale(num_cameras_per_rig, fresh_mirrors, tmp_path):
    """Registration, triangulation, merges, filters, retriangulation, checkpoints."""
    database = synthesize(
        tmp_path / "database.db",
        12 // num_cameras_per_rig,
        num_cameras_per_rig=num_cameras_per_rig,
        inlier_match_ratio=0.7,
    )
    # Tracks grow and fall apart more often.
    limits = {
        "triangulation__merge_max_reproj_error": 8.0,
        "triangulation__complete_max_reproj_error": 8.0,
        "mapper__filter_max_reproj_error": 1.5,
    }
    models = mapped(database, tmp_path / "map", limits, checkpoint_frames=4)
    assert len(fresh_mirrors) > 8
    assert models[0].num_reg_images() == 12


def test_a_mirror_is_not_stale_after_callbacks(shared, fresh_mirrors, tmp_path):
    """A callback replaces points by others with their numbers, and moves others."""
    folder = tmp_path / "map"
    maps = []
    begin = pycolmap.IncrementalMapper.begin_reconstruction
    calls = []

    def change():
        model = maps[-1]
        ids = sorted(model.point3D_ids())
        for point_id in ids[len(calls) :: 5]:
            model.points3D[point_id].xyz = model.points3D[point_id].xyz * 1.001
        for point_id in ids[:3]:
            old = model.points3D[point_id]
            track = pycolmap.Track(old.track.elements)
            xyz = old.xyz + 1e-4
            model.delete_point3D(point_id)
            new = pycolmap.Point3D(xyz=xyz, track=track)
            model.add_point3D_with_id(point_id, new)
        calls.append(len(ids))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pycolmap.IncrementalMapper,
            "begin_reconstruction",
            lambda mapper, model: (maps.append(model), begin(mapper, model))[1],
        )
        mapped(
            shared,
            folder,
            initial_image_pair_callback=change,
            next_image_callback=change,
        )
    assert len(calls) == 11
    assert len(fresh_mirrors) > 10


def test_a_mirror_follows_each_step_of_pycolmap(ours, tmp_path):
    folder, _, _ = ours
    model = pycolmap.Reconstruction(folder / "0")
    mirror = colmap.Mirror(model, keeps_places=True)
    manager = pycolmap.ObservationManager(model)
    images = sorted(model.reg_image_ids())

    def check():
        config = pycolmap.BundleAdjustmentConfig()
        for image_id in images[:4]:
            config.add_image(image_id)
        for point_id in sorted(model.point3D_ids())[::3]:
            config.add_variable_point(point_id)
        assert_is_fresh(mirror, config, tmp_path / "fresh")

    check()
    ids = sorted(model.point3D_ids())
    manager.delete_point3D(ids[0])
    for point_id in ids[3:40]:
        element = model.point3D(point_id).track.elements[0]
        manager.delete_observation(element.image_id, element.point2D_idx)
    check()
    manager.merge_points3D(ids[40], ids[41])
    check()
    manager.filter_all_points3D(0.5, 1.5)
    check()
    model.normalize()
    check()
    model.update_point_3d_errors()
    check()
    manager.deregister_frame(model.image(images.pop()).frame_id)
    check()
    camera = next(iter(model.cameras.values()))
    camera.params = camera.params * 1.01
    check()


def test_a_mirror_refuses_images_without_a_pose(ours):
    folder, _, _ = ours
    model = pycolmap.Reconstruction(folder / "0")
    image_id = sorted(model.reg_image_ids())[-1]
    model.deregister_frame(model.image(image_id).frame_id)
    for mirror in (colmap.Mirror(model), colmap.Mirror(model, keeps_places=True)):
        config, _ = local_config(model)
        config.add_image(image_id)
        with pytest.raises(ValueError, match=f"with a pose .*, found {image_id}"):
            colmap.bundle_adjustment(mirror, None, config)


def test_a_mirror_without_a_config_adjusts_the_whole(ours):
    folder, _, _ = ours
    whole, part = (pycolmap.Reconstruction(folder / "0") for _ in range(2))
    given = {"print_summary": False, "device": "HOST"}
    colmap.bundle_adjustment(whole, **given)
    colmap.bundle_adjustment(colmap.Mirror(part), **given)
    assert all(
        (part.point3D(i).xyz == whole.point3D(i).xyz).all() for i in whole.point3D_ids()
    )


def test_the_module_of_the_package_is_the_one_that_is_tested():
    assert pathlib.Path(colmap.__file__).name == "__init__.py"
