# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""GTSAM on the host. Its camera looks along +z with y downwards: rotations are
multiplied by diag(1, -1, -1) and y changes its sign, which keeps the objective."""
from adapter import main


def solve(job):
  import gtsam
  import numpy
  flip = numpy.diag([1.0, -1.0, -1.0])
  data = job.arrays()
  num_cameras, num_points = len(data['cameras']), len(data['points'])
  point_keys = range(num_cameras, num_cameras + num_points)
  with job.column('set_up'):
    noise = gtsam.noiseModel.Unit.Create(2)
    graph, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
    for camera, point, (x, y) in zip(data['camera_index'].tolist(),
                                     data['point_index'].tolist(),
                                     data['observations'].tolist()):
      graph.push_back(gtsam.GeneralSFMFactorCal3Bundler(
          numpy.array([x, -y]), noise, camera, num_cameras + point))
    for key, c in enumerate(data['cameras']):
      world_to_camera = gtsam.Pose3(
          gtsam.Rot3(flip @ gtsam.Rot3.Expmap(c[:3]).matrix()), flip @ c[3:6])
      values.insert(key, gtsam.PinholeCameraCal3Bundler(
          world_to_camera.inverse(), gtsam.Cal3Bundler(*c[6:9], 0.0, 0.0)))
    for key, point in zip(point_keys, data['points']):
      values.insert(key, point)

  def state(values):
    cameras = numpy.empty((num_cameras, 9))
    for key in range(num_cameras):
      camera = values.atPinholeCameraCal3Bundler(key)
      pose, lens = camera.pose().inverse(), camera.calibration()
      rotation = gtsam.Rot3(flip @ pose.rotation().matrix())
      cameras[key] = [*gtsam.Rot3.Logmap(rotation), *(flip @ pose.translation()),
                      lens.fx(), lens.k1(), lens.k2()]
    return cameras, gtsam.utilities.extractPoint3(values)

  parameters = (gtsam.LevenbergMarquardtParams.CeresDefaults()
                if job.setting['ceres_defaults'] else gtsam.LevenbergMarquardtParams())
  if job.setting['points_first']:
    ordering = gtsam.Ordering()
    for key in (*point_keys, *range(num_cameras)):
      ordering.push_back(key)
    parameters.setOrdering(ordering)
  parameters.setMaxIterations(job.iterations)
  job.begin()
  optimizer = gtsam.LevenbergMarquardtOptimizer(graph, values, parameters)
  cost = job.initial_cost = optimizer.error()
  # The loop and the tests of NonlinearOptimizer::defaultOptimize.
  while optimizer.iterations() < job.iterations and job.seconds_left() > 0:
    optimizer.iterate()
    before, cost = cost, optimizer.error()
    job.stamp(state(optimizer.values()), cost)
    if (before - cost <= parameters.getAbsoluteErrorTol()
        or before - cost <= parameters.getRelativeErrorTol() * before):
      break


main({'name': 'gtsam', 'packages': ['gtsam==4.3.0', 'numpy==2.5.5'], 'kinds': ['bal'],
      'settings': {
          'default': {'device': 'host', 'ceres_defaults': False, 'points_first': False,
                      'most_observations': 6000000},
          # As its own timing of BAL problems, timeSFMBAL.
          'best': {'device': 'host', 'ceres_defaults': True, 'points_first': True,
                   'most_observations': 6000000}}}, solve)
