# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Caspar, the CUDA code generator in SymForce's package, with the factor of its own
example of BAL. Preparing generates and compiles its solver, which requires nvcc and
CMake. Its reports begin after its transfers; states between are solves of their own,
which begin at the start again."""
import os
import subprocess
import sys

from adapter import main


def library(job):
  """Its caspar library and folder, without generated code."""
  import dataclasses
  import symforce
  is_double = job.setting['precision'] == 'double'
  symforce.set_epsilon_to_number(1e-15 if is_double else 1e-6)
  import symforce.symbolic as sf
  from symforce import typing as T
  from symforce.caspar import CasparLibrary
  from symforce.caspar import memory as mem

  @dataclasses.dataclass
  class Cam:
    pose: sf.Pose3
    calibration: sf.V3

  class Point(sf.V3):
    pass

  class Pixel(sf.V2):
    pass

  caslib = CasparLibrary(dtype=mem.DType.DOUBLE if is_double else mem.DType.FLOAT)

  @caslib.add_factor
  def reprojection(cam: T.Annotated[Cam, mem.TunableShared],
                   point: T.Annotated[Point, mem.TunableShared],
                   pixel: T.Annotated[Pixel, mem.ConstantSequential]) -> sf.V2:
    focal_length, k1, k2 = cam.calibration
    in_camera = cam.pose * point
    depth = in_camera[2]
    p = -sf.V2(in_camera[:2]) / (depth + sf.epsilon() * sf.sign_no_zero(depth))
    r = 1 + k1 * p.squared_norm() + k2 * p.squared_norm() ** 2
    return focal_length * r * p - pixel

  return caslib


def folder(job):
  return os.path.join(job.work, 'generated_' + job.setting['precision'])


def prepare(job):
  from pathlib import Path
  caslib = library(job)
  caslib.generate(Path(folder(job)))
  os.environ['CMAKE_PREFIX_PATH'] = os.path.join(
      __import__('pybind11').__path__[0], 'share', 'cmake', 'pybind11')
  # compile() cannot say which Python to build for, and CMake takes the first it finds.
  subprocess.run(['cmake', '-S', folder(job), '-B', os.path.join(folder(job), 'build'),
                  '-DCMAKE_BUILD_TYPE=Release', '-DPYTHON_EXECUTABLE=' + sys.executable],
                 check=True)
  caslib.compile(Path(folder(job)), cuda_arch=job.setting.get('cuda_arch'),
                 jobs=job.threads)


def solve(job):
  import numpy
  sys.path.insert(0, folder(job))
  with job.column('start_of_cuda'):
    import caspar_lib as lib
    lib.GraphSolver(lib.SolverParams(), Cam_num_max=1, Point_num_max=1,
                    reprojection_num_max=1)
  data = job.arrays()
  real = numpy.float64 if job.setting['precision'] == 'double' else numpy.float32
  angle = numpy.linalg.norm(data['cameras'][:, :3], axis=1, keepdims=True)
  # sin(angle / 2) / angle, also at 0; numpy.sinc(x) is sin(pi x) / (pi x).
  q = numpy.hstack([data['cameras'][:, :3] * numpy.sinc(angle / (2 * numpy.pi)) / 2,
                    numpy.cos(angle / 2)])  # x y z w
  cameras = numpy.ascontiguousarray(
      numpy.hstack([q, data['cameras'][:, 3:]]), real)
  points = numpy.ascontiguousarray(data['points'], real)
  pixels = numpy.ascontiguousarray(data['observations'], real)
  indices = [numpy.ascontiguousarray(data[name], numpy.uint32)
             for name in ('camera_index', 'point_index')]

  def state(solver):
    c, p = numpy.empty_like(cameras), numpy.empty_like(points)
    solver.get_Cam_nodes_to_stacked_host(c)
    solver.get_Point_nodes_to_stacked_host(p)
    q = c[:, :4].astype(float) * numpy.where(c[:, 3:4] < 0, -1.0, 1.0)
    sine = numpy.linalg.norm(q[:, :3], axis=1, keepdims=True)
    scale = 2 * numpy.arctan2(sine, q[:, 3:4]) / numpy.maximum(sine, 1e-300)
    scale[sine == 0] = 2
    return numpy.hstack([scale * q[:, :3], c[:, 4:]]), p

  def run(iterations):
    params = lib.SolverParams()
    params.solver_iter_max = iterations
    for name, value in job.setting['params'].items():
      setattr(params, name, value)
    with job.column('set_up'):
      solver = lib.GraphSolver(params, Cam_num_max=len(cameras),
                               Point_num_max=len(points),
                               reprojection_num_max=len(pixels))
    with job.column('transfer'):
      solver.set_Cam_num(len(cameras))
      solver.set_Cam_nodes_from_stacked_host(cameras)
      solver.set_Point_num(len(points))
      solver.set_Point_nodes_from_stacked_host(points)
      solver.set_reprojection_num(len(pixels))
      solver.set_reprojection_pixel_data_from_stacked_host(pixels)
      solver.set_reprojection_cam_indices_from_host(indices[0])
      solver.set_reprojection_point_indices_from_host(indices[1])
      solver.finish_indices()
    return solver, solver.solve(verbose_logging=True)

  job.begin()
  solver, result = run(job.iterations)
  columns = dict(job.columns)
  job.initial_cost, job.message = result.initial_score, str(result.exit_reason)
  last = state(solver)
  del solver
  best, steps = float('inf'), list(result.iterations)
  for k, step in enumerate(steps, 1):
    if step.score_best < best and k < len(steps):
      job.stamp(state(run(k)[0]) if job.states and job.looks_at(k) else None,
                step.score_best, step.dt_tot)
    best = min(best, step.score_best)
  job.stamp(last, result.final_score, result.runtime)
  job.columns = columns


main({'name': 'caspar',
      'packages': ['symforce==0.12.0', 'symforce-sym==0.12.0', 'skymarshal==0.12.0',
                   'argh==0.31.3', 'ply==3.11', 'clang-format==21.1.2',
                   'graphviz==0.21', 'jinja2==3.1.6', 'markupsafe==3.0.4',
                   'mpmath==1.3.0', 'ruff==0.17.6', 'sortedcontainers==2.4.0',
                   'sympy==1.14.0', 'pybind11==2.13.6', 'numpy==2.5.5',
                   'scipy==1.18.1'],
      'needs': ['nvcc', 'cmake'], 'kinds': ['bal', 'windows'],
      'settings': {
          # The settings of its example of BAL, in float and in double.
          'default': {'device': 'cuda', 'precision': 'float',
                      'params': {'diag_init': 1, 'pcg_iter_max': 20,
                                 'pcg_rel_error_exit': 1e-2}},
          'double': {'device': 'cuda', 'precision': 'double',
                     'params': {'diag_init': 1, 'pcg_iter_max': 20,
                                'pcg_rel_error_exit': 1e-2}},
          'library_defaults': {'device': 'cuda', 'precision': 'double',
                               'params': {}}}}, solve, prepare)
