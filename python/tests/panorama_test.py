# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""EQUIRECTANGULAR cameras against pycolmap: projection, adjustments whose errors
cross the seam, maps, and what is refused."""

import io

import colmap_test
import global_mapping_test
import mapping_test
import numpy
import pytest

from ceres_ext import colmap

pycolmap = pytest.importorskip("pycolmap")
if "EQUIRECTANGULAR" not in pycolmap.CameraModelId.__members__:
    pytest.skip("an older pycolmap", allow_module_level=True)

QUIET = colmap_test.QUIET
SIZE = (2000, 1000)


def panorama(camera_id=1):
    return pycolmap.Camera(
        model="EQUIRECTANGULAR",
        width=SIZE[0],
        height=SIZE[1],
        params=SIZE,
        camera_id=camera_id,
    )


def surrounded(noise=0.0, num_images=5, num_points=150):
    """Images in the middle of points that all of them see, and that are off by
    `noise` after that."""
    random = numpy.random.default_rng(1)
    angle = random.uniform(-numpy.pi, numpy.pi, num_points)
    distance = random.uniform(4, 7, num_points)
    points = numpy.stack(
        [
            distance * numpy.sin(angle),
            random.uniform(-3, 3, num_points),
            distance * numpy.cos(angle),
        ],
        axis=1,
    )
    off = noise * random.uniform(-1, 1, points.shape)
    reconstruction = pycolmap.Reconstruction()
    camera = panorama()
    reconstruction.add_camera_with_trivial_rig(camera)
    for point in points + off:
        reconstruction.add_point3D(point, pycolmap.Track())
    for i in range(1, num_images + 1):
        quaternion = numpy.append(random.uniform(-0.2, 0.2, 3), 1.0)
        pose = pycolmap.Rigid3d(
            pycolmap.Rotation3d(quaternion / numpy.linalg.norm(quaternion)),
            random.uniform(-1, 1, 3),
        )
        image = pycolmap.Image(
            name=f"{i}.jpg",
            points2D=[pycolmap.Point2D(x) for x in camera.img_from_cam(pose * points)],
            camera_id=1,
            image_id=i,
        )
        reconstruction.add_image_with_trivial_frame(image, pose)
        for k in range(num_points):
            reconstruction.add_observation(k + 1, pycolmap.TrackElement(i, k))
    return reconstruction, points


def num_across_seam(reconstruction):
    count = 0
    for image in reconstruction.images.values():
        seen = numpy.array([p.xy for p in image.points2D])
        points = numpy.array(
            [reconstruction.point3D(p.point3D_id).xyz for p in image.points2D]
        )
        projected = panorama().img_from_cam(image.cam_from_world() * points)
        count += (abs(projected - seen)[:, 0] > SIZE[0] / 2).sum()
    return count


def test_points_all_around_project_as_pycolmaps():
    random = numpy.random.default_rng(2)
    points = random.normal(size=(2000, 3))
    axes = [[0, 0, 1], [0.0, 0, -1], [-0.0, 0, -1], [1, 0, 0], [-1, 0, 0]]
    near_poles = [[1e-3, 1, 0], [0, -1, 2e-3], [0, 1, -1e-4]]
    points = numpy.vstack([points, axes, near_poles])
    found = colmap.img_from_cam("EQUIRECTANGULAR", numpy.array(SIZE, float), points)
    expected = panorama().img_from_cam(points)
    # pycolmap takes the arc sine of Y / d, whose rounding becomes 1e-16 / 1e-4
    # radians of 1000 / pi pixels each.
    assert numpy.abs(found - expected).max() < 1e-9
    assert numpy.abs(found - expected)[:-3].max() < 1e-10
    assert found[-7].tolist() == [2000, 500] and found[-6].tolist() == [0, 500]


def test_poles_have_no_image():
    poles = numpy.array([[0.0, 1, 0], [0, -2, 0], [0, 0, 0]])
    found = colmap.img_from_cam("EQUIRECTANGULAR", numpy.array(SIZE, float), poles)
    assert numpy.isnan(found).all()


def test_adjustments_across_the_seam():
    ours, points = surrounded(noise=0.3)
    other, _ = surrounded(noise=0.3)
    assert num_across_seam(ours) > 3
    mirror = colmap.Mirror(surrounded(noise=0.3)[0])
    config = colmap_test.whole(other)
    summary = colmap.bundle_adjustment(ours, bound_intrinsics=True, **QUIET)
    assert summary.num_filtered_observations == 0
    theirs = colmap_test.theirs(other, config)
    assert summary.solve.initial_cost == pytest.approx(theirs.initial_cost, rel=1e-9)
    assert summary.solve.num_effective_parameters_reduced == (
        theirs.num_effective_parameters_reduced
    )
    assert summary.solve.final_cost < 1e-10
    assert ours.compute_mean_reprojection_error() < 1e-5
    assert ours.camera(1).params.tolist() == list(SIZE)
    of_mirror = colmap.bundle_adjustment(mirror, config=config, **QUIET)
    assert of_mirror.solve.final_cost == pytest.approx(
        summary.solve.final_cost, abs=1e-10
    )


def test_colmap_adjuster(tmp_path):
    reconstruction, _ = surrounded(noise=0.3)
    reconstruction.write_text(tmp_path)
    refined = tmp_path / "refined"
    outcome = colmap_test.adjuster(
        f"--input_path={tmp_path}",
        f"--output_path={refined}",
        "--refine_principal_point",
    )
    assert outcome.returncode == 0, outcome.stderr
    found = pycolmap.Reconstruction(refined)
    assert found.camera(1).model_name == "EQUIRECTANGULAR"
    assert found.camera(1).params.tolist() == list(SIZE)
    # The errors in the file.
    assert max(point.error for point in found.points3D.values()) < 1e-4
    assert num_across_seam(found) == 0


def test_poles_are_refused_by_name(tmp_path):
    reconstruction, _ = surrounded()
    pose = reconstruction.image(3).cam_from_world()
    reconstruction.point3D(7).xyz = pose.inverse() * numpy.array([0.0, 2.5, 0.0])
    before = reconstruction.point3D(8).xyz
    message = r"point 7 in image 3 \(3.jpg\): .* vertical axis .* camera 1, .* a pole"
    with pytest.raises(ValueError, match=message):
        colmap.bundle_adjustment(reconstruction, **QUIET)
    assert (reconstruction.point3D(8).xyz == before).all()
    reconstruction.write_binary(tmp_path)
    outcome = colmap_test.adjuster(
        f"--input_path={tmp_path}", f"--output_path={tmp_path / 'refined'}"
    )
    assert outcome.returncode == 2
    assert f"{tmp_path}: point 7 in image 3 (3.jpg)" in outcome.stderr


@pytest.mark.parametrize("params", [(0.0, 1000.0), (2000.0, -1.0)])
def test_other_sizes_are_refused(params):
    reconstruction, _ = surrounded()
    reconstruction.camera(1).params = params
    with pytest.raises(ValueError, match="2 finite PARAMS above 0 for EQUIRECTANGULAR"):
        colmap.bundle_adjustment(reconstruction, **QUIET)


@pytest.mark.parametrize(
    "mapper",
    [mapping_test.INCREMENTAL, global_mapping_test.GLOBAL],
    ids=lambda mapper: mapper.name,
)
def test_maps_of_panoramas(mapper, tmp_path):
    path = mapping_test.synthesize(
        tmp_path / "database.db",
        8,
        camera_model_id=pycolmap.CameraModelId.EQUIRECTANGULAR,
        camera_width=SIZE[0],
        camera_height=SIZE[1],
        camera_params=SIZE,
    )
    lines = io.StringIO()
    report = colmap.MappingReport(lines)
    models = mapper.mapped(path, tmp_path / "ours", mapping_report=report)
    (model,) = models.values()
    assert model.num_reg_images() == 8
    assert "focal lengths" not in lines.getvalue()
    mapping_test.assert_as_good(
        models, mapper.mapped_by_pycolmap(path, tmp_path / "theirs")
    )
