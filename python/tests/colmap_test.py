# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""ceres_ext.colmap against pycolmap, in one process."""

import json
import os
import pathlib
import site
import subprocess

import numpy
import pytest
from conftest import BUILD, PROGRAMS

import ceres_ext
from ceres_ext import colmap

pycolmap = pytest.importorskip("pycolmap")

# Real models, which need not be there.
DATA = pathlib.Path(
    os.environ.get(
        "CERES_EXT_DATA_DIR",
        pathlib.Path(__file__).parents[2] / ".." / "shared" / "data",
    )
)
# Those that are solved in seconds, with their images, and what is known of their
# minimum: True if pycolmap converges within its 100 iterations.
MODELS = {
    "real/colmap_23": True,
    "real/aicon_network": True,
    "real/dbat_sxb": True,
    "real/dbat_stpierre": False,
    "real/fisheye_room": True,
}
# CERES_EXT_TEST_DEVICE=CUDA runs all of it on a device.
QUIET = {
    "print_summary": False,
    "device": os.environ.get("CERES_EXT_TEST_DEVICE", "HOST"),
}


def folder(name):
    if not (DATA / name).is_dir():
        pytest.skip(f"no {name} in {DATA} (set CERES_EXT_DATA_DIR)")
    return DATA / name


def theirs(reconstruction, config=None, **values):
    """The summary of pycolmap's solve, and the solved reconstruction."""
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    for name, value in values.items():
        if name == "loss_function_type":
            options.ceres.loss_function_type = getattr(
                pycolmap.LossFunctionType, value
            )
        elif name == "loss_function_scale":
            options.ceres.loss_function_scale = value
        else:
            setattr(options, name, value)
    if config is None:
        manager = pycolmap.ObservationManager(reconstruction)
        manager.filter_observations_with_negative_depth()
        config = whole(reconstruction)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(
        options, config, reconstruction
    )
    return adjuster.solve().ceres_summary


def whole(reconstruction):
    config = pycolmap.BundleAdjustmentConfig()
    for image in reconstruction.reg_image_ids():
        config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    return config


def assert_as_good(ours, other):
    """The same problem, and a cost that is the same or lower."""
    solve = ours.solve
    assert solve.path == "FULL", solve.path_reason
    assert solve.num_residuals_reduced == other.num_residuals_reduced
    assert (
        solve.num_effective_parameters_reduced
        == other.num_effective_parameters_reduced
    )
    assert solve.initial_cost == pytest.approx(other.initial_cost, rel=1e-9)
    assert solve.final_cost <= other.final_cost * (1 + 1e-6)


def synthetic(camera_model="SIMPLE_RADIAL", params=(1280.0, 512.0, 384.0, 0.05), **values):
    """Two rigs of three sensors, ten frames."""
    pycolmap.set_random_seed(1)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 2
    options.num_cameras_per_rig = 3
    options.num_frames_per_rig = 5
    options.num_points3D = 100
    options.camera_model_id = getattr(pycolmap.CameraModelId, camera_model)
    options.camera_params = list(params)
    for name, value in values.items():
        setattr(options, name, value)
    reconstruction = pycolmap.synthesize_dataset(options)
    noise = pycolmap.SyntheticNoiseOptions()
    noise.rig_from_world_translation_stddev = 0.02
    noise.rig_from_world_rotation_stddev = 0.2
    noise.point3D_stddev = 0.02
    noise.point2D_stddev = 0.5
    pycolmap.synthesize_noise(noise, reconstruction)
    return reconstruction


NUM_PARAMS = {
    name: len(
        pycolmap.Camera.create_from_model_name(1, name, 1000.0, 1000, 800).params
    )
    for name in pycolmap.CameraModelId.__members__
    if name != "INVALID"
}


def random_params(name, random):
    """Parameters with which all points up to 45 degrees from the axis have an
    image. EQUIRECTANGULAR has its size as parameters."""
    model = getattr(pycolmap.CameraModelId, name)
    camera = pycolmap.Camera.create_from_model_id(1, model, 1000.0, 1000, 800)
    num_focals = len(camera.focal_length_idxs())
    params = random.uniform(-0.05, 0.05, NUM_PARAMS[name])
    params[:num_focals] = random.uniform(800, 1200, num_focals)
    params[num_focals : num_focals + 2] = random.uniform(400, 600, 2)
    if name == "FOV":
        params[4] = random.uniform(0.1, 1.5)
    if name == "EUCM":
        params[4:] = random.uniform(0.2, 0.8), random.uniform(0.5, 1.5)
    return params


@pytest.mark.parametrize("name", sorted(NUM_PARAMS))
def test_camera_models_project_as_pycolmap(name):
    assert name in colmap.CAMERA_MODELS
    random = numpy.random.default_rng(1)
    for _ in range(20):
        params = random_params(name, random)
        camera = pycolmap.Camera(model=name, width=1000, height=800, params=params)
        points = random.uniform(-1, 1, (200, 3))
        points[:, 2] = random.uniform(1, 2, 200)
        expected = camera.img_from_cam(points)
        found = colmap.img_from_cam(name, params, points)
        # pycolmap ends the series of FOV after r^2 where r^2 < 1e-4.
        near = (points[:, 0] ** 2 + points[:, 1] ** 2) < 1e-4 * points[:, 2] ** 2
        limit = numpy.where(near & (name == "FOV"), 1e-7, 0) + 1e-12 * 1e3
        assert (numpy.abs(found - expected) < limit[:, None]).all()
    behind = colmap.img_from_cam(name, params, numpy.array([[0.0, 0.0, -1.0]]))
    sees_behind = name.endswith("DIVISION") or name == "EQUIRECTANGULAR"
    assert numpy.isnan(behind).all() or sees_behind


def test_other_camera_models_are_refused_by_name(monkeypatch):
    assert set(NUM_PARAMS) == set(colmap.CAMERA_MODELS)
    with pytest.raises(ValueError, match="camera_model: expected one of"):
        colmap.img_from_cam("CYLINDER", numpy.ones(2), numpy.ones((1, 3)))
    monkeypatch.setattr(colmap.adjustment, "CAMERA_MODELS", ("PINHOLE",))
    with pytest.raises(ValueError, match="SIMPLE_RADIAL, which is not supported"):
        colmap.bundle_adjustment(synthetic(), **QUIET)


@pytest.mark.parametrize("form", ["BIN", "TXT"])
def test_models_are_read_and_written(tmp_path, form):
    reconstruction = synthetic()
    given, written = tmp_path / "given", tmp_path / "written"
    given.mkdir()
    (reconstruction.write_binary if form == "BIN" else reconstruction.write_text)(
        given
    )
    model = colmap.read(given)
    assert model.format == form
    assert repr(model) == (
        "<ceres_ext.colmap.Model: 6 cameras, 30 images, 100 points, "
        f"{reconstruction.compute_num_observations()} observations>"
    )
    colmap.write(model, written)
    again = pycolmap.Reconstruction(written)
    if form == "BIN":
        # Poses of images follow from those of frames, in other roundings.
        for file in ("cameras", "rigs", "frames", "points3D"):
            assert (given / f"{file}.bin").read_bytes() == (
                written / f"{file}.bin"
            ).read_bytes()
    for image_id, image in reconstruction.images.items():
        i = model.image_ids.tolist().index(image_id)
        pose = image.cam_from_world()
        found = again.image(image_id).cam_from_world()
        assert numpy.abs(found.matrix() - pose.matrix()).max() < 1e-13
        quaternion = model.image_poses[i, :4]
        sign = numpy.sign(quaternion @ pose.rotation.quat)
        assert numpy.abs(sign * quaternion - pose.rotation.quat).max() < 1e-14
        assert numpy.abs(model.image_poses[i, 4:] - pose.translation).max() < 1e-13
        assert model.image_names[i] == image.name
        begin, end = model.points2d_begin[i : i + 2]
        assert end - begin == image.num_points2D()
        for k, point in enumerate(image.points2D):
            assert (model.points2d[begin + k] == point.xy).all()
            index = model.point_index[begin + k]
            assert (index >= 0) == point.has_point3D()
            if index >= 0:
                assert model.point_ids[index] == point.point3D_id
    for point_id, xyz, color in zip(
        model.point_ids.tolist(), model.points, model.colors, strict=True
    ):
        point = reconstruction.point3D(point_id)
        assert (point.xyz == xyz).all() and (point.color == color).all()
    assert model.camera_models == ["SIMPLE_RADIAL"] * 6
    assert (model.camera_sizes == [1024, 768]).all()
    assert model.camera_params.shape == (6, 16)
    assert len(model.sensor_poses) == len(model.sensor_rig_ids) == 4
    # Arrays are views, which keep the model.
    points = model.points
    points[0] = 1.0, 2.0, 3.0
    del model
    assert points[0].tolist() == [1.0, 2.0, 3.0]


def test_refusals_of_files(tmp_path):
    with pytest.raises(OSError):
        colmap.read(tmp_path / "none")
    with pytest.raises(ValueError, match="cameras.txt: expected a readable file"):
        colmap.read(tmp_path)
    reconstruction = synthetic()
    reconstruction.write_binary(tmp_path)
    model = colmap.read(tmp_path)
    with pytest.raises(ValueError, match="format: expected TXT or BIN"):
        model.format = "txt"
    model.format = "TXT"
    with pytest.raises(OSError, match="without other files of a model"):
        colmap.write(model, tmp_path)


VALUES = [
    {},
    {"loss_function_type": "SOFT_L1", "loss_function_scale": 0.5},
    {"loss_function_type": "CAUCHY", "loss_function_scale": 1.0},
    {"loss_function_type": "HUBER", "loss_function_scale": 2.0},
    {"refine_principal_point": True, "min_track_length": 3},
    {"refine_focal_length": False, "refine_extra_params": False},
    {"refine_points3D": False},
    {"constant_rig_from_world_rotation": True},
    {"refine_rig_from_world": False},
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (name, values)
        for name in MODELS
        for values in (VALUES if name == "real/colmap_23" else VALUES[::2])
    ],
    ids=str,
)
def test_as_pycolmap(name, values):
    path = folder(name)
    ours, other = pycolmap.Reconstruction(path), pycolmap.Reconstruction(path)
    summary = colmap.bundle_adjustment(ours, **values, **QUIET)
    expected = theirs(other, **values)
    assert_as_good(summary, expected)
    if (
        summary.termination_type == "CONVERGENCE"
        and MODELS[name]
        and expected.termination_type.name == "CONVERGENCE"
        and not values
    ):
        other.update_point_3d_errors()
        assert ours.compute_mean_reprojection_error() == pytest.approx(
            other.compute_mean_reprojection_error(), rel=1e-6
        )


def test_as_the_whole_of_pycolmap():
    """Points behind cameras are deleted first, and errors are updated."""
    path = folder("real/colmap_23")
    ours, other = pycolmap.Reconstruction(path), pycolmap.Reconstruction(path)
    for reconstruction in (ours, other):
        # A point behind the camera of its first image.
        point = reconstruction.point3D(min(reconstruction.points3D))
        image = reconstruction.image(point.track.elements[0].image_id)
        point.xyz = image.cam_from_world().inverse() * numpy.array([0.1, 0.2, -3.0])
    before = ours.compute_num_observations()
    summary = colmap.bundle_adjustment(ours, **QUIET)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    pycolmap.bundle_adjustment(other, options)
    assert summary.num_filtered_observations > 0
    assert ours.compute_num_observations() == other.compute_num_observations()
    assert (
        before - ours.compute_num_observations()
        >= summary.num_filtered_observations
    )
    assert ours.compute_mean_reprojection_error() == pytest.approx(
        other.compute_mean_reprojection_error(), rel=1e-6
    )
    for image_id, image in other.images.items():
        found = ours.image(image_id).cam_from_world().matrix()
        assert numpy.abs(found - image.cam_from_world().matrix()).max() < 1e-4


RIGS = [
    {},
    {"refine_sensor_from_rig": False},
    {"refine_rig_from_world": False},
    {"constant_rig_from_world_rotation": True},
    {"loss_function_type": "CAUCHY"},
]


@pytest.mark.parametrize("values", RIGS, ids=str)
def test_rigs_as_pycolmap(values):
    ours, other = synthetic(), synthetic()
    sensors = {
        (rig_id, sensor.id): pose.params.copy()
        for rig_id, rig in ours.rigs.items()
        for sensor, pose in rig.non_ref_sensors.items()
    }
    assert len(sensors) == 4
    summary = colmap.bundle_adjustment(ours, **values, **QUIET)
    assert_as_good(summary, theirs(other, **values))
    for rig_id, rig in ours.rigs.items():
        for sensor, pose in rig.non_ref_sensors.items():
            is_same = (pose.params == sensors[rig_id, sensor.id]).all()
            assert is_same == (values.get("refine_sensor_from_rig") is False)
    for image_id, image in other.images.items():
        found = ours.image(image_id).cam_from_world().matrix()
        assert numpy.abs(found - image.cam_from_world().matrix()).max() < 1e-4
    assert ours.compute_mean_reprojection_error() < 10.0


@pytest.mark.parametrize("name", colmap.CAMERA_MODELS)
def test_camera_models_in_rigs(name):
    params = random_params(name, numpy.random.default_rng(2))
    values = {"camera_model": name, "params": params, "num_points3D": 60}
    ours, other = synthetic(**values), synthetic(**values)
    # Parameters of FULL_OPENCV and EUCM lie in a valley, where pycolmap ends
    # after 100 iterations.
    summary = colmap.bundle_adjustment(ours, max_num_iterations=300, **QUIET)
    assert_as_good(summary, theirs(other))


def adjuster(*flags):
    return subprocess.run(
        [BUILD / "examples" / "colmap" / "colmap_adjuster", "--device=host", *flags],
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("values", RIGS, ids=str)
def test_colmap_adjuster_takes_rigs(tmp_path, values):
    reconstruction = synthetic()
    reconstruction.write_binary(tmp_path)
    refined = tmp_path / "refined"
    outcome = adjuster(
        f"--input_path={tmp_path}",
        f"--output_path={refined}",
        *(f"--{name}={str(value)}" for name, value in values.items()),
    )
    assert outcome.returncode == 0, outcome.stderr
    theirs(reconstruction, **values)
    found = pycolmap.Reconstruction(refined)
    assert found.num_rigs() == 2 and found.num_frames() == 10
    for image_id, image in reconstruction.images.items():
        ours = found.image(image_id).cam_from_world().matrix()
        assert numpy.abs(ours - image.cam_from_world().matrix()).max() < 1e-4
    reconstruction.update_point_3d_errors()
    assert found.compute_mean_reprojection_error() == pytest.approx(
        reconstruction.compute_mean_reprojection_error(), rel=1e-6
    )


def test_colmap_adjuster_names_what_it_refuses_and_what_ran_away(tmp_path):
    reconstruction = synthetic()
    for camera in reconstruction.cameras.values():
        camera.params[0] *= 20
    reconstruction.write_binary(tmp_path)
    paths = f"--input_path={tmp_path}", f"--output_path={tmp_path / 'refined'}"
    outcome = adjuster(*paths, "--split_pose")
    assert outcome.returncode == 1
    assert "--split_pose: expected a model without rigs of several" in outcome.stderr
    outcome = adjuster(*paths, f"--report_json={tmp_path / 'report.json'}")
    assert outcome.returncode == 0, outcome.stderr
    summary = colmap.bundle_adjustment(reconstruction, **QUIET)
    assert summary.runaway_focal_lengths
    for line in summary.brief_report().split("\n")[1:]:
        assert line in outcome.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["problem"]["num_runaway_focal_lengths"] == len(
        summary.runaway_focal_lengths
    )


def configs(reconstruction):
    """Names and configs of what is constant, added or left out."""
    images = sorted(reconstruction.reg_image_ids())
    frames = sorted({reconstruction.image(i).frame_id for i in images})
    points = sorted(reconstruction.points3D)
    cameras = sorted(reconstruction.cameras)
    gauges = pycolmap.BundleAdjustmentGauge

    config = whole(reconstruction)
    config.set_constant_cam_intrinsics(cameras[0])
    config.set_constant_rig_from_world_pose(frames[1])
    for point in points[::7]:
        config.add_constant_point(point)
    yield "constant", config
    config = whole(reconstruction)
    config.set_constant_rig_from_world_pose(frames[2])
    config.set_constant_rig_from_world_pose(frames[4])
    yield "two constant frames", config
    config = whole(reconstruction)
    config.fix_gauge(gauges.THREE_POINTS)
    yield "three points", config
    config = whole(reconstruction)
    config.fix_gauge(gauges.UNSPECIFIED)
    yield "no gauge", config
    # A local adjustment: some images, and points that others see too.
    config = pycolmap.BundleAdjustmentConfig()
    chosen = [i for i in images if reconstruction.image(i).frame_id in frames[:4]]
    for image in chosen:
        config.add_image(image)
    yield "local", config
    config = pycolmap.BundleAdjustmentConfig()
    for image in chosen:
        config.add_image(image)
    seen = {
        reconstruction.image(i).points2D[k].point3D_id
        for i in chosen
        for k in reconstruction.image(i).get_observation_point2D_idxs()
    }
    for point in sorted(seen)[::2]:
        config.add_variable_point(point)
    for point in sorted(seen)[1::4]:
        config.add_constant_point(point)
    yield "local with added points", config


CONFIGS = [
    "constant",
    "two constant frames",
    "three points",
    "no gauge",
    "local",
    "local with added points",
]


def find_config(reconstruction, which):
    return dict(configs(reconstruction))[which]


@pytest.mark.parametrize("which", CONFIGS)
@pytest.mark.parametrize("name", ["rigs", "real/colmap_23"])
def test_configs_as_pycolmap(name, which):
    def load():
        return synthetic() if name == "rigs" else pycolmap.Reconstruction(folder(name))

    ours, other = load(), load()
    summary = colmap.bundle_adjustment(ours, None, find_config(ours, which), **QUIET)
    expected = theirs(other, find_config(other, which))
    assert_as_good(summary, expected)
    if which == "local":
        # Poses that are not in the problem keep their bits.
        config = find_config(ours, which)
        chosen = {ours.image(image).frame_id for image in config.images}
        start = load()
        others = set(start.frames) - chosen
        assert others
        for frame in others:
            pose = ours.frame(frame).rig_from_world.params
            assert (pose == start.frame(frame).rig_from_world.params).all()


def test_constant_sensors_as_pycolmap():
    def load():
        reconstruction = synthetic()
        config = whole(reconstruction)
        sensors = [
            sensor
            for rig in reconstruction.rigs.values()
            for sensor in rig.non_ref_sensors
        ]
        config.set_constant_sensor_from_rig_pose(sensors[0])
        return reconstruction, config

    ours, config = load()
    summary = colmap.bundle_adjustment(ours, None, config, **QUIET)
    other, config = load()
    assert_as_good(summary, theirs(other, config))


def test_options_of_pycolmap_apply():
    path = folder("real/colmap_23")
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.refine_focal_length = False
    options.ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    options.ceres.loss_function_scale = 0.7
    options.ceres.solver_options.max_num_iterations = 3
    ours, other = pycolmap.Reconstruction(path), pycolmap.Reconstruction(path)
    summary = colmap.bundle_adjustment(ours, options, device="HOST")
    config = whole(other)
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, other)
    expected = adjuster.solve().ceres_summary
    assert summary.solve.initial_cost == pytest.approx(expected.initial_cost, rel=1e-9)
    assert len(summary.solve.iterations) == 4
    # Keywords are on top of them.
    summary = colmap.bundle_adjustment(
        pycolmap.Reconstruction(path),
        options,
        refine_focal_length=True,
        max_num_iterations=1,
        device="HOST",
    )
    assert len(summary.solve.iterations) == 2
    options.ceres.auto_select_solver_type = False
    options.ceres.solver_options.linear_solver_type = type(
        options.ceres.solver_options.linear_solver_type
    ).ITERATIVE_SCHUR
    summary = colmap.bundle_adjustment(ours, options, device="HOST")
    assert summary.solve.linear_solver_type_given == "ITERATIVE_SCHUR"
    assert summary.solve.num_pcg_iterations > 0
    options.ceres.solver_options.max_lbfgs_rank = 7
    with pytest.raises(ValueError, match="max_lbfgs_rank: expected 20, found 7"):
        colmap.bundle_adjustment(ours, options)
    options = pycolmap.BundleAdjustmentOptions()
    options.backend = pycolmap.BundleAdjustmentBackend.CASPAR
    with pytest.raises(ValueError, match="backend: expected CERES, found CASPAR"):
        colmap.bundle_adjustment(ours, options)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"refine_focal_lengths": True}, TypeError, "refine_focal_lengths: unknown"),
        ({"use_gpu": True}, TypeError, "use_gpu: unknown option"),
        ({"min_track_length": "2"}, TypeError, "min_track_length: expected a value"),
        ({"loss_function_type": "TUKEY"}, ValueError, "one of TRIVIAL, SOFT_L1"),
        ({"loss_function_scale": 0.0}, ValueError, "a number above 0, found 0"),
        ({"fixed_gauge": "FREE"}, ValueError, "fixed_gauge: expected one of"),
        ({"device": "TPU"}, ValueError, "device"),
        ({"callback": 3}, TypeError, "callback: expected a function"),
        ({"max_num_iterations": -1}, ValueError, "max_num_iterations"),
    ],
)
def test_refused_options(values, error, message):
    reconstruction = synthetic()
    before = reconstruction.image(1).cam_from_world().params.copy()
    with pytest.raises(error, match=message):
        colmap.bundle_adjustment(reconstruction, **{"print_summary": False, **values})
    assert (reconstruction.image(1).cam_from_world().params == before).all()


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="expected a pycolmap.Reconstruction or"):
        colmap.bundle_adjustment("sparse/0")


def test_refused_configs():
    reconstruction = synthetic()
    config = pycolmap.BundleAdjustmentConfig()
    config.add_image(12345)
    with pytest.raises(ValueError, match="expected images with a pose .* 12345"):
        colmap.bundle_adjustment(reconstruction, None, config, **QUIET)
    # The frame of an image that is not selected varies by another image.
    config = pycolmap.BundleAdjustmentConfig()
    frame = next(iter(reconstruction.frames.values()))
    images = [d.id for d in frame.data_ids]
    reference = [i for i in images if reconstruction.image(i).is_ref_in_frame()]
    for image in set(images) - set(reference):
        config.add_image(image)
    config.add_variable_point(next(iter(reconstruction.points3D)))
    with pytest.raises(ValueError, match=f"image {reference[0]} sees a point"):
        colmap.bundle_adjustment(reconstruction, None, config, **QUIET)


def test_runaway_focal_lengths_are_named(capsys):
    """A flat scene seen from afar along one direction, from a wrong start."""
    reconstruction = synthetic()
    for camera in reconstruction.cameras.values():
        camera.params[0] *= 20
    summary = colmap.bundle_adjustment(reconstruction, device="HOST")
    ids = {one.camera_id for one in summary.runaway_focal_lengths}
    ends = {i: c.params[0] for i, c in reconstruction.cameras.items()}
    assert ids == {i for i, f in ends.items() if not 2560 < f < 256000}
    assert ids, ends
    for one in summary.runaway_focal_lengths:
        assert one.start == pytest.approx(25600, rel=1e-12)
        assert one.end == ends[one.camera_id]
        assert one.axis == 0
    assert f"camera {min(ids)}: the observations do not determine" in (
        capsys.readouterr().out
    )


def test_parts_without_a_pose_are_left_alone():
    ours, other = synthetic(), synthetic()
    for reconstruction in (ours, other):
        reconstruction.deregister_frame(min(reconstruction.frames))
    assert ours.num_reg_images() == 27
    assert_as_good(colmap.bundle_adjustment(ours, **QUIET), theirs(other))
    assert not ours.frame(min(ours.frames)).has_pose()
    nothing = colmap.bundle_adjustment(pycolmap.Reconstruction(), **QUIET)
    assert nothing.num_residuals == 0


def test_references_stay_and_callbacks_end_it():
    reconstruction = synthetic()
    image = next(iter(reconstruction.images.values()))
    point = next(iter(reconstruction.points3D.values()))
    before, xyz = image.cam_from_world().params.copy(), point.xyz.copy()

    class Enough(Exception):
        pass

    def stop(iteration):
        if iteration.iteration == 2:
            raise Enough

    with pytest.raises(Enough):
        colmap.bundle_adjustment(reconstruction, callback=stop, **QUIET)
    # The best state is there.
    assert (point.xyz != xyz).all()
    assert (before != image.cam_from_world().params).any()
    summary = colmap.bundle_adjustment(
        reconstruction, callback=lambda i: i.iteration < 1, **QUIET
    )
    assert summary.termination_type == "USER_SUCCESS"
    assert summary.num_residuals == 2 * reconstruction.compute_num_observations()


def test_callbacks_see_the_state(tmp_path):
    synthetic().write_binary(tmp_path)
    for update in (False, True):
        model = colmap.read(tmp_path)
        start = model.points.copy()
        seen = []
        colmap.bundle_adjustment(
            model,
            callback=lambda _, model=model, seen=seen: seen.append(model.points.copy()),
            update_state_every_iteration=update,
            max_num_iterations=3,
            **QUIET,
        )
        assert (seen[0] == start).all()
        assert (seen[-1] != start).any() == update
        assert (model.points != start).all(axis=1).any()
        assert not update or (seen[-1] == model.points).all()


def test_points_that_were_deleted_are_an_error():
    reconstruction = synthetic()
    gone = max(reconstruction.points3D)

    def delete(iteration):
        if iteration.iteration == 1:
            reconstruction.delete_point3D(gone)

    with pytest.raises(KeyError):
        colmap.bundle_adjustment(reconstruction, callback=delete, **QUIET)


def test_features_that_need_a_problem_of_objects():
    ours, other = synthetic(), synthetic()
    summary = colmap.bundle_adjustment(
        ours,
        use_inner_iterations=True,
        **QUIET,
    )
    assert "inner iterations need a ceres::Problem" in summary.solve.path_reason
    expected = theirs(other)
    assert summary.solve.final_cost <= expected.final_cost * (1 + 1e-6)


def test_types(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    package = pathlib.Path(ceres_ext.__file__).parent
    if str(package.parent) not in site.getsitepackages():
        monkeypatch.setenv("MYPYPATH", str(package.parent))
    script = tmp_path / "script.py"
    lines = [
        "from ceres_ext import colmap",
        "model = colmap.read('sparse/0')",
        "summary = colmap.bundle_adjustment(model, refine_points3D=False)",
        "cost: float = summary.solve.final_cost",
        "shape: tuple[int, ...] = model.points.shape",
        "names: list[str] = model.image_names",
        "colmap.bundle_adjustment(model, refine_points3D='no')",
        "colmap.write('sparse/0', model)",
    ]
    script.write_text("\n".join(lines))
    found, _, _ = api.run(["--strict", "--no-incremental", str(script)])
    errors = [
        line.split(":")[1]
        for line in found.splitlines()
        if line.startswith(str(script)) or "/ceres_ext/colmap/" in line.split(":")[0]
    ]
    assert set(errors) == {"7", "8"}, found


def test_models_without_pycolmap(tmp_path):
    start = tmp_path / "start"
    subprocess.run(
        [
            PROGRAMS / "bal_generate",
            "--num_cameras=10",
            "--num_points=300",
            "--num_observations=1500",
            "--outlier_fraction=0",
            "--camera_model=OPENCV",
            f"--output={start}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    model = colmap.read(start)
    summary = colmap.bundle_adjustment(model, **QUIET)
    assert summary.is_solution_usable()
    other = pycolmap.Reconstruction(start)
    assert_as_good(summary, theirs(other))
    colmap.write(model, tmp_path / "refined")
    refined = pycolmap.Reconstruction(tmp_path / "refined")
    assert refined.image(3).cam_from_world().matrix() == pytest.approx(
        other.image(3).cam_from_world().matrix(), abs=1e-4
    )
    assert ceres_ext.colmap is colmap
