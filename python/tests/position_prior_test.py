# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""incremental_mapping with measured positions, against pycolmap's and the truth."""

import mapping_test
import numpy
import pytest

from ceres_ext import colmap
from ceres_ext.colmap import position_priors

pycolmap = pytest.importorskip("pycolmap")
if not hasattr(pycolmap, "IncrementalPipelineStatus"):
    pytest.skip("an older pycolmap", allow_module_level=True)

mapped = mapping_test.mapped
mapped_by_pycolmap = mapping_test.mapped_by_pycolmap
bits = mapping_test.bits

OFFSET = numpy.array([0.3, -0.8, 0.2])
SIGMA = 0.02
SHIFT = numpy.array([3e5, 5e6, 100.0])


@pytest.fixture(scope="session", autouse=True)
def quiet():
    pycolmap.logging.minloglevel = 3


def synthesize(path, num_images=14, num_cameras=1, offset=None, sigma=SIGMA):
    """A database with positions far from zero, of cameras, or of antennas. Returns
    the true centers of cameras."""
    pycolmap.set_random_seed(3)
    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs = 1
    options.num_cameras_per_rig = num_cameras
    options.num_frames_per_rig = num_images
    options.num_points3D = 150
    options.prior_position = True
    noise = pycolmap.SyntheticNoiseOptions()
    noise.point2D_stddev = 0.5
    noise.prior_position_stddev = 0.0
    database = pycolmap.Database.open(path)
    model = pycolmap.synthesize_dataset(options, database)
    pycolmap.synthesize_noise(noise, model, database)
    rng = numpy.random.default_rng(0)
    for prior in database.read_all_pose_priors():
        image = model.image(prior.corr_data_id.id)
        place = image.projection_center()
        if offset is not None:
            pose = model.frame(image.frame_id).rig_from_world
            place = pose.rotation.matrix().T @ (offset - pose.translation)
        prior.position = place + SHIFT + sigma * rng.normal(size=3)
        prior.position_covariance = sigma**2 * numpy.eye(3)
        database.update_pose_prior(prior)
    database.close()
    return {i: image.projection_center() + SHIFT for i, image in model.images.items()}


def center_errors(model, truth):
    ids = model.reg_image_ids()
    return numpy.linalg.norm(
        [model.image(i).projection_center() - truth[i] for i in ids], axis=1
    )


@pytest.mark.parametrize("is_robust", [False, True])
def test_positions_of_cameras(is_robust, tmp_path):
    path = tmp_path / "database.db"
    truth = synthesize(path, 20)
    if is_robust:
        database = pycolmap.Database.open(path)
        prior = database.read_all_pose_priors()[4]
        prior.position = prior.position + numpy.array([30.0, 0.0, 0.0])
        database.update_pose_prior(prior)
        database.close()
    fields = {
        "use_prior_position": True,
        "use_robust_loss_on_prior_position": is_robust,
    }
    report = colmap.MappingReport()
    models = mapped(path, tmp_path / "ours", fields, mapping_report=report)
    assert "adjustment by pycolmap" not in report.calls
    assert report.antenna_offset is None
    others = mapped_by_pycolmap(path, tmp_path / "theirs", **fields)
    assert models[0].num_reg_images() == 20
    mapping_test.assert_as_good(models, others)
    ours, theirs = (center_errors(one[0], truth) for one in (models, others))
    assert ours.max() < 3 * SIGMA
    assert numpy.sqrt((ours**2).mean()) < 1.1 * numpy.sqrt((theirs**2).mean())


def test_positions_of_a_rig(tmp_path):
    truth = synthesize(tmp_path / "database.db", 8, 2)
    models = mapped(
        tmp_path / "database.db", tmp_path / "ours", {"use_prior_position": True}
    )
    assert models[0].num_reg_images() == 16
    assert models[0].compute_mean_reprojection_error() < 0.6
    assert center_errors(models[0], truth).max() < 3 * SIGMA


@pytest.mark.parametrize("num_cameras", [1, 2])
def test_a_known_antenna(num_cameras, tmp_path):
    path = tmp_path / "database.db"
    truth = synthesize(path, 10, num_cameras, OFFSET)
    fields = {"use_prior_position": True}
    models = mapped(path, tmp_path / "ours", fields, antenna_offset=OFFSET)
    assert models[0].num_reg_images() == 10 * num_cameras
    assert center_errors(models[0], truth).max() < 4 * SIGMA
    without = mapped(path, tmp_path / "without", fields)
    assert center_errors(without[0], truth).mean() > 0.1


@pytest.mark.parametrize("num_cameras", [1, 2])
def test_an_antenna_is_estimated(num_cameras, tmp_path):
    path = tmp_path / "database.db"
    truth = synthesize(path, 14, num_cameras, OFFSET)
    report = colmap.MappingReport()
    models = mapped(
        path,
        tmp_path / "ours",
        {"use_prior_position": True},
        refine_antenna_offset=True,
        mapping_report=report,
    )
    assert models[0].num_reg_frames() == 14
    # All cameras look at one point, so z and the scale are hardly told apart.
    assert report.antenna_offset[:2] == pytest.approx(OFFSET[:2], abs=2 * SIGMA)
    assert center_errors(models[0], truth).max() < 0.5


def test_a_resumed_run_has_the_same_bits(tmp_path):
    path = tmp_path / "database.db"
    synthesize(path, 14, 1, OFFSET)
    report = colmap.MappingReport()
    arguments = {
        "refine_antenna_offset": True,
        "checkpoint_frames": 4,
        "mapping_report": report,
    }
    fields = {"use_prior_position": True}
    mapped(path, tmp_path / "whole", fields, **arguments)
    expected = report.antenna_offset

    class Stop(Exception):
        pass

    def stop():
        if any(stage.num_images == 13 for stage in report.stages):
            raise Stop

    with pytest.raises(Stop):
        mapped(
            path, tmp_path / "map", fields, next_image_callback=stop, **arguments
        )
    with pytest.raises(ValueError, match="have changed since this checkpoint"):
        mapped(path, tmp_path / "map", fields, resume=True, checkpoint_frames=4)
    mapped(path, tmp_path / "map", fields, resume=True, **arguments)
    assert "Resumed" in report.notes[0]
    assert (report.antenna_offset == expected).all()
    assert bits(tmp_path / "map" / "0") == bits(tmp_path / "whole" / "0")


def test_positions_that_are_all_the_same(tmp_path):
    """They are not used."""
    path = tmp_path / "database.db"
    synthesize(path, 8)
    database = pycolmap.Database.open(path)
    for prior in database.read_all_pose_priors():
        prior.position = SHIFT
        database.update_pose_prior(prior)
    database.close()
    models = mapped(path, tmp_path / "map", {"use_prior_position": True})
    assert models[0].num_reg_images() == 8
    assert models[0].compute_mean_reprojection_error() < 0.6
    assert numpy.abs(models[0].image(1).projection_center()).max() < 1e3


def test_constant_cameras(tmp_path):
    path = tmp_path / "database.db"
    synthesize(path, 8)
    fields = {"use_prior_position": True, "constant_cameras": {1}}
    models = mapped(path, tmp_path / "map", fields)
    assert models[0].camera(1).params.tolist() == [1280.0, 512.0, 384.0, 0.05]
    fields = {"use_prior_position": True, "ba_refine_focal_length": False}
    models = mapped(path, tmp_path / "focal", fields)
    assert models[0].camera(1).params[0] == 1280.0
    assert models[0].camera(1).params[3] != 0.05


@pytest.mark.parametrize("num_cameras", [1, 2])
@pytest.mark.parametrize("has_antenna", [False, True])
def test_positions_in_an_adjustment(has_antenna, num_cameras, tmp_path):
    """Positions far from zero hold a model where they are; without them they do not
    move it. An antenna is estimated."""
    path = tmp_path / "database.db"
    synthesize(path, 8, num_cameras)
    model = mapped(path, tmp_path / "map", {"use_prior_position": True})[0]
    ids = model.reg_image_ids()
    places = numpy.array([model.image(i).projection_center() for i in ids])
    if has_antenna:
        for k, image_id in enumerate(ids):
            frame = model.frame(model.image(image_id).frame_id)
            pose = frame.rig_from_world
            places[k] = pose.rotation.matrix().T @ (OFFSET - pose.translation)
    sigma = 1e-3
    shift = numpy.array([0.5, 0.0, 0.0])
    positions = colmap.MeasuredPositions(
        ids,
        places + shift,
        numpy.tile(sigma**2 * numpy.eye(3), (len(ids), 1, 1)),
        antenna_offset=0.9 * OFFSET if has_antenna else None,
        antenna_sigma=1.0 if has_antenna else 0.0,
    )
    before = model.compute_mean_reprojection_error()
    centers = numpy.array([model.image(i).projection_center() for i in ids])
    summary = colmap.bundle_adjustment(
        model,
        positions=positions,
        linear_solver_type="SPARSE_SCHUR",
        device="HOST",
        print_summary=False,
    )
    assert summary.is_solution_usable()
    moved = numpy.array([model.image(i).projection_center() for i in ids])
    # With all cameras towards one point the z of an antenna acts as the scale does.
    limit = 0.05 if has_antenna else 5e-3
    assert (moved - centers)[:, 0] == pytest.approx(0.5, abs=limit)
    assert model.compute_mean_reprojection_error() < before + 1e-3
    if has_antenna:
        assert summary.antenna_offset[:2] == pytest.approx(OFFSET[:2], abs=0.02)
    else:
        assert summary.antenna_offset is None
    with pytest.raises(ValueError, match="positions: expected images with a pose"):
        colmap.bundle_adjustment(model, positions=positions._replace(image_ids=[99]))
    with pytest.raises(ValueError, match="covariances: 0: .* positive definite"):
        colmap.bundle_adjustment(
            model,
            positions=positions._replace(covariances=0.0 * positions.covariances),
        )


def test_wrong_arguments(tmp_path):
    path = tmp_path / "database.db"
    synthesize(path, 4)
    with pytest.raises(ValueError, match="expected options.use_prior_position=True"):
        mapped(path, tmp_path / "map", antenna_offset=[0, 0, 1])
    with pytest.raises(ValueError, match="antenna_offset: expected 3 finite numbers"):
        mapped(path, tmp_path / "map", antenna_offset=[0, 1])
    done = mapping_test.run(
        mapping_test.COMMAND,
        f"--database_path={path}",
        f"--image_path={tmp_path}",
        f"--output_path={tmp_path / 'map'}",
        "--antenna_offset=1,2",
    )
    assert done.returncode == 2
    assert "antenna_offset: expected 3 finite numbers" in done.stderr


def test_a_similarity():
    rng = numpy.random.default_rng(0)
    source = rng.normal(size=(9, 3))
    quaternion = rng.normal(size=4)
    rotation = pycolmap.Rotation3d(quaternion / numpy.linalg.norm(quaternion)).matrix()
    target = 2.5 * source @ rotation.T + [1.0, 2.0, 3.0]
    target[0] += 7.0
    weights = numpy.ones(9)
    weights[0] = 0.0
    scale, turn, shift = position_priors._fit_similarity(source, target, weights)
    assert scale == pytest.approx(2.5)
    assert turn == pytest.approx(rotation)
    assert shift == pytest.approx([1.0, 2.0, 3.0])
