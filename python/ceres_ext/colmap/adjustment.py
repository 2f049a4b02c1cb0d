# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Models of COLMAP, and bundle adjustment in place of pycolmap's."""

from __future__ import annotations

import collections.abc
import functools
import importlib
import os
import time
import typing

import numpy
import numpy.typing

from .._ceres_ext import ColmapModel as Model
from .._ceres_ext import (
    IterationSummary,
    SolverOptions,
    Summary,
    _adjust_colmap,
    _colmap_camera_models,
    _ColmapPositions,
    _ColmapProblemOptions,
    _img_from_cam,
    _intrinsics_bounds,
    _read_colmap,
    _write_colmap,
)
from .mirror import (
    Mirror,
    read_reconstruction,
    write_cameras_and_poses,
    write_points,
)

CAMERA_MODELS: tuple[str, ...] = tuple(_colmap_camera_models())
"""The names of the camera models that are supported: those of COLMAP 4."""

_Flags = numpy.typing.NDArray[numpy.bool_]
_Doubles = numpy.typing.NDArray[numpy.float64]

_LOSSES = ["TRIVIAL", "SOFT_L1", "CAUCHY", "HUBER"]
_GAUGES = ["UNSPECIFIED", "TWO_CAMS_FROM_WORLD", "THREE_POINTS"]
# A pycolmap.BundleAdjustmentOptions may not have them.
PRIOR_WEIGHTS = [
    "focal_length_prior_weight",
    "principal_point_prior_weight",
    "extra_params_prior_weight",
]
INTRINSICS_FIELDS = [
    "bound_intrinsics",
    "min_focal_length_ratio",
    "max_focal_length_ratio",
    "max_extra_param",
    *PRIOR_WEIGHTS,
]

if typing.TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._ceres_ext import OptionValues

    class MapperValues(OptionValues, total=False):
        """Keywords of mappers, those of intrinsics as in bundle_adjustment()."""

        bound_intrinsics: bool
        min_focal_length_ratio: float
        max_focal_length_ratio: float
        max_extra_param: float
        focal_length_prior_weight: float
        principal_point_prior_weight: float
        extra_params_prior_weight: float


# COLMAP's defaults of ceres::Solver::Options.
_SOLVER_DEFAULTS: OptionValues = {
    "max_num_iterations": 100,
    "max_linear_solver_iterations": 200,
    "max_num_consecutive_invalid_steps": 10,
    "max_consecutive_nonmonotonic_steps": 10,
    "function_tolerance": 0.0,
    "gradient_tolerance": 1e-4,
    "parameter_tolerance": 0.0,
}

# Fields of pycolmap's solver_options that select its linear solver, which have
# an effect only if auto_select_solver_type is False.
_LINEAR_SOLVER_FIELDS = {
    "linear_solver_type",
    "preconditioner_type",
    "visibility_clustering_type",
    "dense_linear_algebra_library_type",
    "sparse_linear_algebra_library_type",
    "use_explicit_schur_complement",
    "dynamic_sparsity",
}


def read(folder: str | os.PathLike[str]) -> Model:
    """Reads a model: cameras, images, points3D, and rigs and frames if they are
    there, as text or binary; where both are complete, the binary files.

    folder: for example "sparse/0".

    OSError: there is no such folder. ValueError: a file is missing or holds
    something else; the message names the file, its line or byte, what was
    expected there and what was found.

        model = ceres_ext.colmap.read("sparse/0")
        print(model, model.points.mean(axis=0))
    """
    folder = os.fspath(folder)
    os.listdir(folder)
    return _read_colmap(folder)


def write(model: Model, folder: str | os.PathLike[str]) -> None:
    """Writes a model, in the form model.format, to files that read() and COLMAP
    read back with the same bits.

    The folder is created if its own folder is there. Each file is written
    completely or not at all.

    OSError: a file can't be written, or the folder holds files of a model that
    this one would not replace.

        model.format = "TXT"
        ceres_ext.colmap.write(model, "refined")
    """
    _write_colmap(model, os.fspath(folder))


def img_from_cam(
    camera_model: str,
    params: numpy.typing.NDArray[numpy.float64],
    points: numpy.typing.NDArray[numpy.float64],
) -> numpy.typing.NDArray[numpy.float64]:
    """Projects points in the frame of a camera, as Camera.img_from_cam of
    pycolmap.

    camera_model: one of CAMERA_MODELS. params: (k,), its parameters in COLMAP's
    order. points: (n, 3), the camera looks along +z.

    Returns (n, 2), pixels; NaN for points that have no image, as behind the
    camera. EQUIRECTANGULAR has images of all points except those of its vertical
    axis, which pycolmap projects.

    ValueError, TypeError: another name, shape or type.

        img_from_cam("PINHOLE", numpy.array([900.0, 900.0, 512.0, 384.0]),
                     numpy.array([[0.1, 0.2, 2.0]]))
    """
    return _img_from_cam(camera_model, params, points)


def intrinsics_bounds(
    camera_model: str,
    width: float,
    height: float,
    *,
    min_focal_length_ratio: float = 0.1,
    max_focal_length_ratio: float = 10.0,
    max_extra_param: float = 1.0,
) -> tuple[
    numpy.typing.NDArray[numpy.float64], numpy.typing.NDArray[numpy.float64]
]:
    """Lower and upper bounds of a camera's parameters, for add_parameters.

    camera_model: one of CAMERA_MODELS. width, height: of the image, in pixels.
    min_focal_length_ratio, max_focal_length_ratio: limits of focal lengths, in
    units of the longer side. max_extra_param: limit of the absolute values of the
    coefficients. Principal points are within the image. The parameters of
    EQUIRECTANGULAR, its size, have no bounds.

    ValueError: another name, or limits that do not fit.

        lower, upper = intrinsics_bounds("OPENCV", 1024, 768)
        cameras = problem.add_parameters(values, lower=lower, upper=upper)
    """
    limits = _ColmapProblemOptions()
    limits.min_focal_length_ratio = min_focal_length_ratio
    limits.max_focal_length_ratio = max_focal_length_ratio
    limits.max_extra_param = max_extra_param
    _check_intrinsics(limits)
    return _intrinsics_bounds(camera_model, width, height, limits)


class RunawayFocalLength(typing.NamedTuple):
    """A focal length that the observations do not determine: the solve moved it
    to more than 10 times or less than a tenth of its start."""

    camera_id: int
    axis: int
    """0 of f and fx, 1 of fy."""
    start: float
    """Pixels."""
    end: float
    """Pixels."""


class RunawayObservation(typing.NamedTuple):
    """An observation because of which a solve has ended away from a minimum
    (solve.no_minimum): steps that bring the point to the plane of the camera
    were rejected."""

    point_id: int
    image_id: int
    depth: float
    """Depth of the point in the camera at the end."""
    error: float
    """Residual of the last such step, in pixels; may be nan."""


class MeasuredPositions(typing.NamedTuple):
    """Positions of cameras, or of an antenna beside them, as those of GPS, in the
    frame and unit of the reconstruction."""

    image_ids: collections.abc.Sequence[int]
    positions: _Doubles
    """(n, 3)"""
    covariances: _Doubles
    """(n, 3, 3)"""
    loss_function_scale: float | None = None
    """Standard deviations above which a Cauchy loss gives a position less weight;
    None: no loss."""
    antenna_offset: _Doubles | None = None
    """(3,), where the antenna is, with the axes of the reference camera of its rig,
    x right, y down, z forward. None: positions are those of the cameras."""
    antenna_sigma: float = 0.0
    """Standard deviation of each coordinate of antenna_offset, which is then
    estimated; 0: it is known."""
    antenna_start: _Doubles | None = None
    """(3,), where the estimation starts; None: at antenna_offset."""


class BundleAdjustmentSummary(typing.NamedTuple):
    """The result of bundle_adjustment(), with the names of pycolmap's summary."""

    solve: Summary
    """Costs, steps, times and machine of the solve."""
    runaway_focal_lengths: list[RunawayFocalLength]
    runaway_observations: list[RunawayObservation]
    """Empty unless solve.no_minimum says that the end is not a minimum."""
    num_filtered_observations: int
    """Observations of points behind their camera, which were deleted."""
    read_time_in_seconds: float
    """Seconds for reading the reconstruction."""
    write_time_in_seconds: float
    """Seconds for writing the result into it."""
    antenna_offset: _Doubles | None = None
    """The offset of MeasuredPositions after the solve."""

    @property
    def termination_type(self) -> str:
        """CONVERGENCE, NO_CONVERGENCE, FAILURE or USER_SUCCESS."""
        return self.solve.termination_type

    @property
    def num_residuals(self) -> int:
        """Residuals of the solve, two for an observation, three for a position."""
        return self.solve.num_residuals_reduced

    def is_solution_usable(self) -> bool:
        """True if the reconstruction holds a solution."""
        return self.solve.is_solution_usable()

    def brief_report(self) -> str:
        """A line on the solve, and one for each runaway focal length and, if
        the end is not a minimum, for that and each runaway observation."""
        lines = [self.solve.brief_report()]
        for one in self.runaway_focal_lengths:
            lines.append(
                f"camera {one.camera_id}: the observations do not determine its "
                f"focal length{' fy' if one.axis == 1 else ''}, which went from "
                f"{one.start:.6g} to {one.end:.6g} pixels"
            )
        if self.solve.no_minimum:
            lines.append(self.solve.no_minimum)
        for seen in self.runaway_observations:
            lines.append(
                f"point {seen.point_id} in image {seen.image_id}: its depth is "
                f"{seen.depth:.3g}, and a rejected step made its error "
                f"{abs(seen.error):.1e} pixels"
            )
        return "\n".join(lines)


def bundle_adjustment(
    reconstruction: typing.Any,
    options: typing.Any = None,
    config: typing.Any = None,
    *,
    refine_focal_length: bool | None = None,
    refine_principal_point: bool | None = None,
    refine_extra_params: bool | None = None,
    bound_intrinsics: bool | None = None,
    min_focal_length_ratio: float | None = None,
    max_focal_length_ratio: float | None = None,
    max_extra_param: float | None = None,
    focal_length_prior_weight: float | None = None,
    principal_point_prior_weight: float | None = None,
    extra_params_prior_weight: float | None = None,
    expected_intrinsics: collections.abc.Mapping[int, collections.abc.Sequence[float]]
    | None = None,
    refine_rig_from_world: bool | None = None,
    refine_sensor_from_rig: bool | None = None,
    constant_rig_from_world_rotation: bool | None = None,
    refine_points3D: bool | None = None,
    min_track_length: int | None = None,
    loss_function_type: str | None = None,
    loss_function_scale: float | None = None,
    fixed_gauge: str | None = None,
    positions: MeasuredPositions | None = None,
    print_summary: bool | None = None,
    callback: collections.abc.Callable[[IterationSummary], object] | None = None,
    **values: Unpack[OptionValues],
) -> BundleAdjustmentSummary:
    """Refines poses, cameras and points, as pycolmap.bundle_adjustment does.

    reconstruction: a pycolmap.Reconstruction or a Model, refined in place. The
    errors of a Reconstruction's points are updated. Or a Mirror of a
    Reconstruction, of which only what config names is read and written.
    options: a pycolmap.BundleAdjustmentOptions, or None for its defaults. Its
    ceres.solver_options apply, except that linear_solver="AUTO" chooses the
    linear solver unless ceres.auto_select_solver_type is False. Its other fields
    that select solvers and machines of pycolmap (use_gpu, gpu_index,
    max_num_images..., min_num_..., caspar) have no effect; `device` chooses.
    config: a pycolmap.BundleAdjustmentConfig: images, constant poses, cameras,
    sensors and points, variable points, and the gauge. With None all images are
    in the problem and the gauge is TWO_CAMS_FROM_WORLD, after observations of
    points behind their camera were deleted from a Reconstruction, as
    pycolmap.bundle_adjustment does.
    bound_intrinsics: keeps refined focal lengths and coefficients within the next
    three (intrinsics_bounds) and principal points within the image; False by
    default.
    ..._prior_weight: weights of soft priors on refined parameters, 1 / sigma; 0, the
    default: none. expected_intrinsics: where these priors are, all parameters by
    the camera's id; those of other cameras are at the values they have.
    loss_function_type: TRIVIAL, SOFT_L1, CAUCHY, HUBER.
    loss_function_scale: in pixels.
    fixed_gauge: UNSPECIFIED, TWO_CAMS_FROM_WORLD, THREE_POINTS.
    positions: measured positions of images in the problem, near which the
    reconstruction is already. The gauge is then UNSPECIFIED by default.
    print_summary: prints brief_report().
    callback, values: as for ceres_ext.solve, for example
    max_num_iterations=20, device="CUDA".

    Keywords, except expected_intrinsics, positions and the last two, are fields of
    options and config, whose values they replace.

    A Reconstruction is read through its binary form in memory and written
    through references to its parts. References that the caller has stay valid.

    ValueError: a camera model, an option or a part of the config is not
    supported, or a point is in the vertical axis of an EQUIRECTANGULAR camera that
    sees it; the message names it.
    TypeError: the reconstruction is another object, or an option is unknown or
    has another type.
    A solve that fails raises nothing: is_solution_usable() is False, and poses,
    cameras and points are unchanged.

        summary = bundle_adjustment(reconstruction, loss_function_type="HUBER",
                                    refine_principal_point=True)
        print(summary.brief_report())
    """
    if not isinstance(reconstruction, (Mirror, Model)) and not hasattr(
        reconstruction, "write_binary"
    ):
        raise TypeError(
            "reconstruction: expected a pycolmap.Reconstruction or a "
            f"ceres_ext.colmap.Model, found {type(reconstruction).__name__}"
        )
    given: dict[str, object] = {
        "refine_focal_length": refine_focal_length,
        "refine_principal_point": refine_principal_point,
        "refine_extra_params": refine_extra_params,
        "bound_intrinsics": bound_intrinsics,
        "min_focal_length_ratio": min_focal_length_ratio,
        "max_focal_length_ratio": max_focal_length_ratio,
        "max_extra_param": max_extra_param,
        "focal_length_prior_weight": focal_length_prior_weight,
        "principal_point_prior_weight": principal_point_prior_weight,
        "extra_params_prior_weight": extra_params_prior_weight,
        "refine_rig_from_world": refine_rig_from_world,
        "refine_sensor_from_rig": refine_sensor_from_rig,
        "constant_rig_from_world_rotation": constant_rig_from_world_rotation,
        "refine_points3D": refine_points3D,
        "min_track_length": min_track_length,
        "loss_function_scale": loss_function_scale,
    }
    problem = _ColmapProblemOptions()
    solver = SolverOptions(**_SOLVER_DEFAULTS)
    loss = loss_function_type
    prints = print_summary
    if options is not None:
        for name in given:
            source = options.ceres if name == "loss_function_scale" else options
            if hasattr(source, name) or name not in INTRINSICS_FIELDS:
                setattr(problem, name, getattr(source, name))
        loss = loss or options.ceres.loss_function_type.name
        prints = options.print_summary if prints is None else prints
        _take_solver_options(options, solver)
    for name, chosen in given.items():
        if chosen is not None:
            _set_option(problem, name, chosen)
    if not 0.0 < problem.loss_function_scale < float("inf"):
        raise ValueError(
            "loss_function_scale: expected a number above 0, found "
            f"{problem.loss_function_scale}"
        )
    _check_intrinsics(problem)
    for camera_id, params in (expected_intrinsics or {}).items():
        problem._expect_intrinsics(camera_id, list(params))
    problem._set_loss(_choice("loss_function_type", loss or "TRIVIAL", _LOSSES))
    if fixed_gauge is None:
        fixed_gauge = (
            "UNSPECIFIED"
            if positions is not None
            else "TWO_CAMS_FROM_WORLD"
            if config is None
            else config.fixed_gauge.name
        )
    problem._set_gauge(_choice("fixed_gauge", fixed_gauge, _GAUGES))
    for name, value in values.items():
        setattr(solver, name, value)

    start = time.perf_counter()
    num_filtered = 0
    partly_seen = None
    mirror = reconstruction if isinstance(reconstruction, Mirror) else None
    if mirror is not None and config is None:
        reconstruction = mirror.reconstruction
        mirror = None
    if isinstance(reconstruction, Model):
        model = reconstruction
    elif mirror is not None:
        model, partly_seen = mirror._read(config)
    else:
        check_cameras(reconstruction)
        if config is None:
            num_filtered = _filter_observations(reconstruction)
        model = read_reconstruction(reconstruction)
    selection = _select(model, config)
    if partly_seen is not None and selection[-1] is not None:
        selection[-1] = partly_seen | selection[-1]
    priors = None if positions is None else _priors(positions, model)
    read_time = time.perf_counter() - start
    write_time = 0.0
    try:
        summary, runaways, observations = _adjust_colmap(
            model, problem, solver, selection, priors, callback, mirror is not None
        )
    finally:
        if model is not reconstruction:
            start = time.perf_counter()
            if mirror is not None:
                mirror._write(model)
            else:
                _write_back(model, reconstruction)
            write_time = time.perf_counter() - start
    result = BundleAdjustmentSummary(
        summary,
        [RunawayFocalLength(*one) for one in runaways],
        [RunawayObservation(*one) for one in observations],
        num_filtered,
        read_time,
        write_time,
        None
        if priors is None or positions is None or positions.antenna_offset is None
        else priors.antenna_offset,
    )
    if prints or prints is None:
        print(result.brief_report())
    return result


def _priors(positions: MeasuredPositions, model: Model) -> _ColmapPositions:
    numbers = {image_id: k for k, image_id in enumerate(model.image_ids.tolist())}
    missing = set(positions.image_ids) - numbers.keys()
    if missing:
        raise ValueError(
            "positions: expected images with a pose in the reconstruction, found "
            f"{min(missing)}"
        )
    offset = positions.antenna_offset
    start = positions.antenna_start
    return _ColmapPositions(
        numpy.array([numbers[i] for i in positions.image_ids], numpy.int32),
        positions.positions,
        positions.covariances,
        positions.loss_function_scale or 0.0,
        offset if start is None or offset is None else start,
        offset,
        positions.antenna_sigma,
    )


def check_intrinsics(values: dict[str, typing.Any]) -> None:
    """values: some of INTRINSICS_FIELDS."""
    problem = _ColmapProblemOptions()
    for name, value in values.items():
        _set_option(problem, name, value)
    _check_intrinsics(problem)


def _check_intrinsics(problem: _ColmapProblemOptions) -> None:
    for name in [*PRIOR_WEIGHTS, "min_focal_length_ratio"]:
        if not 0.0 <= getattr(problem, name) < float("inf"):
            raise ValueError(
                f"{name}: expected a number of at least 0, found "
                f"{getattr(problem, name)}"
            )
    if not problem.max_focal_length_ratio > problem.min_focal_length_ratio:
        raise ValueError(
            "max_focal_length_ratio: expected a number above "
            f"min_focal_length_ratio, found {problem.max_focal_length_ratio}"
        )
    if not problem.max_extra_param > 0.0:
        raise ValueError(
            "max_extra_param: expected a number above 0, found "
            f"{problem.max_extra_param}"
        )


def _choice(name: str, value: str, choices: list[str]) -> int:
    if value not in choices:
        raise ValueError(
            f"{name}: expected one of {', '.join(choices)}, found {value!r}"
        )
    return choices.index(value)


def _set_option(problem: _ColmapProblemOptions, name: str, value: object) -> None:
    try:
        setattr(problem, name, value)
    except TypeError:
        expected = type(getattr(problem, name)).__name__
        raise TypeError(
            f"{name}: expected a value of type {expected}, found {value!r}"
        ) from None


def _take_solver_options(options: typing.Any, solver: SolverOptions) -> None:
    """Sets the options of a pycolmap.BundleAdjustmentOptions."""
    if options.backend.name != "CERES":
        raise ValueError(
            f"backend: expected CERES, found {options.backend.name}, which is "
            "another solver of pycolmap"
        )
    theirs = options.ceres.solver_options
    auto_select = options.ceres.auto_select_solver_type
    options_class: typing.Any = type(options)
    for name, default, is_ours in _solver_fields(options_class):
        if name in _LINEAR_SOLVER_FIELDS and auto_select:
            continue
        value = getattr(theirs, name)
        if name == "num_threads" and value < 1:
            continue
        if is_ours:
            setattr(solver, name, getattr(value, "name", value))
        elif value != default:
            raise ValueError(
                f"ceres.solver_options.{name}: expected {default}, found {value}; "
                "other values are not supported"
            )


@functools.cache
def _solver_fields(
    options: typing.Any,
) -> list[tuple[str, typing.Any, bool]]:
    """The fields of ceres.solver_options of a class, BundleAdjustmentOptions of
    pycolmap: name, default, and whether SolverOptions has it too."""
    defaults = options().ceres.solver_options
    return [
        (name, getattr(defaults, name), hasattr(SolverOptions, name))
        for name in defaults.todict()
    ]


def check_cameras(reconstruction: typing.Any) -> None:
    """ValueError if a camera model is not supported."""
    for camera_id, camera in reconstruction.cameras.items():
        if camera.model_name not in CAMERA_MODELS:
            raise ValueError(
                f"camera {camera_id}: expected one of {', '.join(CAMERA_MODELS)}, "
                f"found {camera.model_name}, which is not supported"
            )


def _filter_observations(reconstruction: typing.Any) -> int:
    # By name, so that type checkers do not look for it.
    pycolmap: typing.Any = importlib.import_module("pycolmap")
    manager = pycolmap.ObservationManager(reconstruction)
    return int(manager.filter_observations_with_negative_depth())


def _select(model: Model, config: typing.Any) -> list[_Flags | None]:
    """The arrays of _adjust_colmap for a BundleAdjustmentConfig."""
    if config is None:
        return [None] * 6

    def flags(
        ids: numpy.typing.NDArray[typing.Any], chosen: typing.Any, what: str = ""
    ) -> _Flags:
        if not chosen:
            return numpy.zeros(len(ids), dtype=numpy.bool_)
        found = numpy.isin(ids, numpy.fromiter(chosen, ids.dtype, len(chosen)))
        if what and numpy.count_nonzero(found) < len(chosen):
            raise ValueError(
                f"config: expected {what} with a pose in the reconstruction, found "
                f"{min(chosen - set(ids.tolist()))}"
            )
        return found

    added = config.variable_points | config.constant_points
    images = flags(model.image_ids, config.images, "images")
    frames = flags(model.frame_ids, config.constant_rig_from_world_poses)
    constant_poses = (
        frames[model.image_frames]
        if len(frames) > 0
        else numpy.zeros(len(images), dtype=numpy.bool_)
    )
    sensors = [s.id for s in config.constant_sensor_from_rig_poses]
    added_points = flags(model.point_ids, added, "points")
    if added:
        _check_added_points(model, images, added_points)
    return [
        images,
        constant_poses,
        flags(model.camera_ids, config.constant_cam_intrinsics),
        flags(model.camera_ids, sensors),
        added_points,
        flags(model.point_ids, config.constant_points),
    ]


def _check_added_points(model: Model, images: _Flags, added: _Flags) -> None:
    """Poses of images that are not selected are constant in the observations of
    added points. That is not supported if another image varies the same pose."""
    if len(model.frame_ids) == 0:
        return
    frames = model.image_frames
    varies = numpy.zeros(len(model.frame_ids), dtype=numpy.bool_)
    varies[frames[images]] = True
    index = model.point_index
    begin = model.points2d_begin
    for i in numpy.flatnonzero(~images & (model.image_sensors < 0) & varies[frames]):
        points = index[begin[i] : begin[i + 1]]
        if added[points[points >= 0]].any():
            raise ValueError(
                f"config: image {model.image_ids[i]} sees a point that was added, "
                "and is not selected while another image of its frame is; "
                "add the image"
            )


def _write_back(model: Model, reconstruction: typing.Any) -> None:
    write_cameras_and_poses(model, reconstruction)
    write_points(model, reconstruction)
    reconstruction.update_point_3d_errors()
