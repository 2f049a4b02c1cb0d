# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""pycolmap's bundle adjustment, covariances and global positioning on the host. A BAL
problem becomes a model with RADIAL cameras that look along +z: y and z change their
sign, which keeps the objective. Its summary has no iterations, so each state is a solve
that ends there."""
import os

from adapter import main

FLIP = (1.0, -1.0, -1.0)


def model_of_bal(data):
  import numpy
  import pycolmap
  model = pycolmap.Reconstruction()
  flip = numpy.array(FLIP)
  order = numpy.argsort(data['camera_index'], kind='stable')
  begin = numpy.searchsorted(data['camera_index'][order],
                             numpy.arange(len(data['cameras']) + 1))
  place = numpy.empty(len(order), int)  # Number of an observation in its image.
  size = 2 * int(numpy.abs(data['observations']).max() + 1)
  for i, c in enumerate(data['cameras']):
    seen = order[begin[i]:begin[i + 1]]
    place[seen] = numpy.arange(len(seen))
    model.add_camera_with_trivial_rig(pycolmap.Camera(
        model='RADIAL', width=size, height=size, params=[c[6], 0.0, 0.0, c[7], c[8]],
        camera_id=i + 1))
    rotation = pycolmap.Rotation3d(c[:3]).matrix()
    pose = pycolmap.Rigid3d(pycolmap.Rotation3d(flip[:, None] * rotation), flip * c[3:6])
    image = pycolmap.Image(name=f'{i:06d}', image_id=i + 1, camera_id=i + 1,
                           keypoints=data['observations'][seen] * (1.0, -1.0))
    model.add_image_with_trivial_frame(image, pose)
  order = numpy.argsort(data['point_index'], kind='stable')
  begin = numpy.searchsorted(data['point_index'][order],
                             numpy.arange(len(data['points']) + 1))
  for i, xyz in enumerate(data['points']):
    seen = order[begin[i]:begin[i + 1]]
    model.add_point3D_with_id(i + 1, pycolmap.Point3D(
        xyz=xyz, track=pycolmap.Track(
            [pycolmap.TrackElement(camera + 1, at) for camera, at in zip(
                data['camera_index'][seen].tolist(), place[seen].tolist())])))
  return model


def bal_of_model(model):
  import numpy
  cameras = numpy.empty((model.num_images(), 9))
  for i, c in enumerate(cameras):
    pose = model.image(i + 1).cam_from_world()
    q = type(pose.rotation)(numpy.array(FLIP)[:, None] * pose.rotation.matrix()).quat
    q = q if q[3] >= 0 else -q  # x y z w
    sine = numpy.linalg.norm(q[:3])
    scale = 2 * numpy.arctan2(sine, q[3]) / sine if sine > 0 else 2.0
    params = model.camera(i + 1).params
    c[:] = [*(scale * q[:3]), *(FLIP * pose.translation), params[0], *params[3:5]]
  return cameras, numpy.array([model.point3D(i + 1).xyz
                               for i in range(model.num_points3D())])


def bundle(job):
  import pycolmap
  with job.column('read'):
    model = (model_of_bal(job.arrays()) if job.kind == 'bal' else
             pycolmap.Reconstruction(job.problem))
  options = pycolmap.BundleAdjustmentOptions(print_summary=False)
  options.ceres.solver_options.num_threads = job.threads
  options.ceres.solver_options.max_solver_time_in_seconds = job.seconds
  if 'function_tolerance' in job.setting:
    options.ceres.solver_options.function_tolerance = job.setting['function_tolerance']
    options.ceres.solver_options.gradient_tolerance = 0.0

  def run(iterations):
    refined = pycolmap.Reconstruction(model)
    options.ceres.solver_options.max_num_iterations = iterations
    config = pycolmap.BundleAdjustmentConfig()
    for image in refined.images:
      config.add_image(image)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    with job.column('set_up'):
      adjuster = pycolmap.create_default_bundle_adjuster(options, config, refined)
    summary = adjuster.solve().ceres_summary
    return refined, summary

  job.begin()
  refined, last = run(job.iterations)
  set_up = job.columns['set_up']
  job.initial_cost, job.message = last.initial_cost, last.BriefReport()
  steps = last.num_successful_steps + last.num_unsuccessful_steps
  for k in [*filter(job.looks_at, range(1, steps)), None]:
    state, summary = run(k) if k else (refined, last)
    path = state = bal_of_model(state) if job.kind == 'bal' else state
    if job.kind == 'colmap':
      path = os.path.join(job.folder, f'state{k}')
      os.makedirs(path)
      state.write(path)
    job.stamp(path, summary.final_cost, summary.total_time_in_seconds)
  job.columns['set_up'] = set_up


def covariance(job):
  import numpy
  import pycolmap
  data = job.arrays()
  with job.column('read'):
    model = model_of_bal(data)
  options = pycolmap.BundleAdjustmentOptions(refine_focal_length=False,
                                             refine_extra_params=False)
  config = pycolmap.BundleAdjustmentConfig()
  for i, image in model.images.items():
    config.add_image(i)
    if i <= 2:
      config.set_constant_rig_from_world_pose(image.frame_id)
  with job.column('set_up'):
    adjuster = pycolmap.create_default_ceres_bundle_adjuster(options, config, model)
  wanted = pycolmap.BACovarianceOptions(params=pycolmap.BACovarianceOptionsParams.POSES)
  if 'damping' in job.setting:
    wanted.damping = job.setting['damping']
  job.begin()
  covariances = pycolmap.estimate_ba_covariance(wanted, model, adjuster)
  seconds = job.now()
  if covariances is None:
    raise RuntimeError('estimate_ba_covariance returned none')
  result = numpy.zeros((len(model.images), 6, 6))
  # Ceres turns a quaternion by half of its tangent vector.
  change = numpy.diag([2.0 * x for x in FLIP] + list(FLIP))
  for i in range(3, len(result) + 1):
    result[i - 1] = change @ covariances.get_cam_cov_from_world(i) @ change
  job.stamp((result,), None, seconds)


def positions(job):
  """Its seconds contain the set-up of its problem. It always starts scales at 1, and
  has neither iterations nor a limit of them."""
  import numpy
  import pycolmap
  data = job.arrays()
  with job.column('read'):
    # Cameras that look along +y of the world.
    turn = numpy.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    rays = data['directions'] @ turn.T
    focal = 1000.0
    model = pycolmap.Reconstruction()
    model.add_camera_with_trivial_rig(pycolmap.Camera(
        model='SIMPLE_PINHOLE', width=4000, height=4000, params=[focal, 0.0, 0.0],
        camera_id=1, has_prior_focal_length=True))
    place = numpy.empty(len(rays), int)  # Number of an observation in its image.
    for i, center in enumerate(data['centers']):
      seen = numpy.flatnonzero(data['image_index'] == i)
      place[seen] = numpy.arange(len(seen))
      model.add_image_with_trivial_frame(
          pycolmap.Image(name=f'{i:06d}', image_id=i + 1, camera_id=1,
                         keypoints=focal * rays[seen, :2] / rays[seen, 2:]),
          pycolmap.Rigid3d(pycolmap.Rotation3d(turn), -turn @ center))
    order = numpy.argsort(data['point_index'], kind='stable')
    begin = numpy.searchsorted(data['point_index'][order],
                               numpy.arange(len(data['points']) + 1))
    graph = pycolmap.PoseGraph()
    pairs = set()
    for i, xyz in enumerate(data['points']):
      seen = order[begin[i]:begin[i + 1]]
      images = (data['image_index'][seen] + 1).tolist()
      pairs.update(zip(images, images[1:]))
      model.add_point3D_with_id(i + 1, pycolmap.Point3D(xyz=xyz, track=pycolmap.Track(
          [pycolmap.TrackElement(image, at) for image, at in
           zip(images, place[seen].tolist())])))
    for first, second in {tuple(sorted(pair)) for pair in pairs}:
      graph.add_edge(first, second, pycolmap.PoseGraphEdge())
  options = pycolmap.GlobalPositionerOptions(
      generate_random_positions=False, generate_random_points=False,
      loss_function_scale=data['loss'][0], use_gpu=job.setting['device'] == 'cuda',
      random_seed=1)
  job.begin()
  if not pycolmap.run_global_positioning(options, graph, model):
    raise RuntimeError('run_global_positioning failed')
  seconds = job.now()
  state = (numpy.array([model.image(i + 1).projection_center()
                        for i in range(len(data['centers']))]),
           numpy.array([model.point3D(i + 1).xyz for i in range(len(data['points']))]))
  job.stamp(state, None, seconds)


def solve(job):
  {'covariance': covariance, 'positions': positions}.get(job.kind, bundle)(job)


# Rows are built one by one in Python, which uses up a run of larger problems.
MOST = 700000

main({'name': 'pycolmap', 'packages': ['pycolmap==4.2.1', 'numpy==2.5.5'],
      'kinds': ['bal', 'colmap', 'positions', 'covariance'],
      'settings': {
          'default': {'device': 'host', 'most_observations': MOST},
          # Its default ends at the gradient alone.
          'best': {'device': 'host', 'kinds': ['bal', 'colmap'],
                   'most_observations': MOST, 'function_tolerance': 1e-8},
          # By default it adds 1e-8 to the diagonal.
          'undamped': {'device': 'host', 'kinds': ['covariance'], 'damping': 0.0}}},
     solve)
