# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""GTSAM on the host. Its camera looks along +z with y downwards: rotations are
multiplied by diag(1, -1, -1) and y changes its sign, which keeps the objective."""
from adapter import main

FLIP = (1.0, -1.0, -1.0)


def bundle(job):
  """(graph, values, state of values, keys of points) of BAL or windows, which are
  one problem with one damping."""
  import gtsam
  import numpy
  flip = numpy.diag(FLIP)
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

  return graph, values, state, point_keys


def poses(job):
  import gtsam
  import numpy
  data = job.arrays()
  with job.column('set_up'):
    noise = gtsam.noiseModel.Diagonal.Sigmas(numpy.repeat(1 / data['weights'], 3))
    graph, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
    for (a, b), z in zip(data['edges'].tolist(), data['measurements']):
      graph.push_back(gtsam.BetweenFactorPose3(a, b, pose_of(z), noise))
    for key, pose in enumerate(data['poses']):
      values.insert(key, pose_of(pose))
    # The cost is the same if all poses move together, so this adds nothing.
    graph.push_back(gtsam.PriorFactorPose3(0, pose_of(data['poses'][0]), noise))

  def state(values):
    found = numpy.empty_like(data['poses'])
    for key, row in enumerate(found):
      pose = values.atPose3(key)
      q = pose.rotation().toQuaternion()
      row[:] = [q.w(), q.x(), q.y(), q.z(), *pose.translation()]
    return (found,)

  return graph, values, state, ()


def pose_of(row):
  import gtsam
  return gtsam.Pose3(gtsam.Rot3.Quaternion(*row[:4]), row[4:])


def covariance(job):
  """Marginals of a graph whose calibrations are constants of its factors."""
  import gtsam
  import numpy
  data = job.arrays()
  flip, count = numpy.diag(FLIP), len(data['cameras'])
  with job.column('set_up'):
    noise = gtsam.noiseModel.Unit.Create(2)
    graph, values = gtsam.NonlinearFactorGraph(), gtsam.Values()
    lenses = [gtsam.Cal3DS2(f, f, 0.0, 0.0, 0.0, k1, k2)
              for f, k1, k2 in data['cameras'][:, 6:]]
    for camera, point, (x, y) in zip(data['camera_index'].tolist(),
                                     data['point_index'].tolist(),
                                     data['observations'].tolist()):
      graph.push_back(gtsam.GenericProjectionFactorCal3DS2(
          numpy.array([x, -y]), noise, camera, count + point, lenses[camera]))
    to_camera = [gtsam.Pose3(gtsam.Rot3(flip @ gtsam.Rot3.Expmap(c[:3]).matrix()),
                             flip @ c[3:6]) for c in data['cameras']]
    for key, pose in enumerate(to_camera):
      values.insert(key, pose.inverse())
      if key < 2:
        # Its equality constraints make this system indeterminate.
        graph.push_back(gtsam.PriorFactorPose3(
            key, pose.inverse(), gtsam.noiseModel.Isotropic.Sigma(6, 1e-7)))
    for key, point in enumerate(data['points'], count):
      values.insert(key, point)
  job.begin()
  marginals = gtsam.Marginals(graph, values)
  blocks = [marginals.marginalCovariance(key) for key in range(2, count)]
  seconds = job.now()
  result = numpy.zeros((count, 6, 6))
  for key, block in enumerate(blocks, 2):
    # The inverse of a pose moved on the right: w = -omega, dt = -v + t x omega.
    t = to_camera[key].translation()
    change = -numpy.eye(6)
    change[3:, :3] = gtsam.SO3.Hat(t)
    change = numpy.kron(numpy.eye(2), flip) @ change
    result[key] = change @ block @ change.T
  job.stamp((result,), None, seconds)


def solve(job):
  import gtsam
  if job.kind == 'covariance':
    return covariance(job)
  graph, values, state, first = (poses if job.kind == 'poses' else bundle)(job)
  parameters = (gtsam.LevenbergMarquardtParams.CeresDefaults()
                if job.setting['ceres_defaults'] else gtsam.LevenbergMarquardtParams())
  if job.setting['points_first']:
    ordering = gtsam.Ordering()
    for key in (*first, *range(values.size() - len(first))):
      ordering.push_back(key)
    parameters.setOrdering(ordering)
  if job.setting.get('metis'):
    parameters.setOrderingType('METIS')
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


# Rows are built one by one in Python, which uses up a run of larger problems.
MOST = 1500000

main({'name': 'gtsam', 'packages': ['gtsam==4.3.0', 'numpy==2.5.5'],
      'kinds': ['bal', 'windows', 'poses', 'covariance'],
      'settings': {
          'default': {'device': 'host', 'ceres_defaults': False, 'points_first': False,
                      'most_observations': MOST},
          # Its other order, which takes fewer flops for larger graphs.
          'metis': {'device': 'host', 'kinds': ['poses'], 'ceres_defaults': False,
                    'points_first': False, 'metis': True},
          # As its own timing of BAL problems, timeSFMBAL.
          'best': {'device': 'host', 'kinds': ['bal', 'windows'],
                   'ceres_defaults': True, 'points_first': True,
                   'most_observations': MOST}}}, solve)
