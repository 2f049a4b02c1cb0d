# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The kinds of problems of the arena: how a problem is made, and the audit of a
solver's parameters, which is this project's own code on the host, in double.

A kind has three functions. problems(data) lists (name, source). make(programs, source,
folder) writes a problem and returns its path. evaluate(programs, problem, state)
returns (cost, sizes, what is wrong with the state if there is no cost). title and units
are for the page. claims_are_bounds: a solver's own costs may be above those of the
audit."""
import os
import re
import shutil
import subprocess
import tempfile
import zipfile

import gpu_runs

SIZES = ['dubrovnik-88', 'ladybug-1723', 'dubrovnik-356', 'venice-1778', 'final-4585',
         'final-13682']


def reported(program, flags):
  """(cost at the start, sizes, what is wrong) of bundle_adjuster or colmap_adjuster
  without iterations."""
  report, why = gpu_runs.solve(program, [*flags, '--device=host'], subprocess.PIPE)
  if report is None:
    return None, None, why
  of = report['problem']
  sizes = {'cameras': of.get('num_images', of['num_cameras']),
           'points': of['num_points'], 'observations': of['num_observations']}
  costs = report.get('recomputed_costs', report['summary'])
  return costs['initial_cost'], sizes, ''


class Kind:
  claims_are_bounds = False
  names, pattern = (), None  # Problems that are made by their name.

  def problems(self, data):
    del data
    return [(name, self.source(name)) for name in self.names]

  def source(self, name):
    """Parts of a name, or None if it is not of this kind."""
    match = self.pattern and re.fullmatch(self.pattern, name)
    return match.groups() if match else None


class Colmap(Kind):
  """COLMAP models. A state is a folder."""
  title = 'COLMAP models'
  units = ('images', 'points', 'observations')

  def problems(self, data):
    return [(name, flag.split('=', 1)[1]) for name, program, flag in
            gpu_runs.models(data) if program == 'colmap_adjuster']

  def make(self, programs, source, folder):
    del programs
    path = os.path.join(folder, 'model')
    shutil.copytree(source, path)
    return path

  def evaluate(self, programs, problem, state):
    return reported(programs['colmap_adjuster'],
                    ['--input_path=' + state, '--max_num_iterations=0'])


class Bal(Kind):
  """Problems of "Bundle Adjustment in the Large"."""
  title = 'Bundle adjustment in the large'
  units = ('cameras', 'points', 'observations')
  rows = ('camera_index', 'point_index', 'observations')

  def problems(self, data):
    found = [(name, flag.split('=', 1)[1]) for name, program, flag in
             gpu_runs.models(data) if program == 'bundle_adjuster']
    for size in SIZES:
      found += [(size + '-near', ['--like=' + size, *gpu_runs.NEAR]),
                (size, ['--like=' + size])]
    return found

  def make(self, programs, source, folder):
    path = os.path.join(folder, 'problem.npz')
    command = ([programs['bal_generate'], *source] if isinstance(source, list)
               else [programs['bal_convert'], '--input=' + source])
    subprocess.run([*command, '--output=' + path], check=True, stdout=subprocess.DEVNULL)
    return path

  def evaluate(self, programs, problem, state):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(problem)) as folder:
      path = os.path.join(folder, 'state.npz')
      with zipfile.ZipFile(path, 'w', zipfile.ZIP_STORED) as out:
        for source, names in ((problem, self.rows), (state, ('cameras', 'points'))):
          with zipfile.ZipFile(source) as archive:
            for name in names:
              with archive.open(name + '.npy') as read, \
                   out.open(name + '.npy', 'w', force_zip64=True) as write:
                shutil.copyfileobj(read, write, 1 << 24)
      return reported(programs['bundle_adjuster'],
                      ['--input=' + path, '--num_iterations=0'])


class Windows(Bal):
  """Small problems of BAL end to end: ten cameras along a line, 200 points, each in
  five images. camera_begin, point_begin and row_begin say where each begins. The
  cost is the sum of all."""
  title = 'Windows in batches'

  names, pattern = ('windows-100', 'windows-1000'), r'windows-(\d+)'
  problems = Kind.problems

  def make(self, programs, source, folder):
    import numpy
    n, images, points, views = int(source[0]), 10, 200, 5
    random = numpy.random.default_rng(n)
    cameras = numpy.zeros((n, images, 9))
    cameras[..., :3] = 0.05 * random.standard_normal((n, images, 3))
    cameras[..., 6:] = 500.0, -0.01, 0.001
    centers = 0.05 * random.standard_normal((n, images, 3))
    centers[..., 0] += 0.5 * numpy.arange(images)
    cameras[..., 3:6] = -turned(exp(cameras[..., :3]), centers)
    first = random.integers(0, images - views + 1, (n, points))
    xyz = random.uniform((-2, -2, -12), (2, 2, -6), (n, points, 3))
    xyz[..., 0] += 0.5 * (first + (views - 1) / 2)
    window = images * numpy.arange(n)[:, None, None]
    camera_index = (window + first[..., None] + numpy.arange(views)).reshape(-1)
    point_index = numpy.repeat(numpy.arange(n * points), views)
    cameras, xyz = cameras.reshape(-1, 9), xyz.reshape(-1, 3)
    seen = projected(cameras[camera_index], xyz[point_index])[0]
    arrays = {
        'camera_index': camera_index.astype(numpy.int32),
        'point_index': point_index.astype(numpy.int32),
        'observations': seen + 0.5 * random.standard_normal(seen.shape),
        'cameras': cameras + random.standard_normal(cameras.shape) *
                   numpy.repeat((0.005, 0.02, 0.0), 3),
        'points': xyz + 0.1 * random.standard_normal(xyz.shape)}
    for name, count in (('camera', images), ('point', points), ('row', points * views)):
      arrays[name + '_begin'] = count * numpy.arange(n + 1)
    return save(folder, arrays)

  def evaluate(self, programs, problem, state):
    cost, sizes, why = super().evaluate(programs, problem, state)
    return cost, dict(sizes or {}, windows=len(load(problem)['row_begin']) - 1), why


class Poses(Kind):
  """Graphs of poses: quaternion w, x, y, z and position. The first pose is constant.
  The cost is ½ Σ |weights Log(Z^-1 A^-1 B)|² of the measurements Z of b seen from a,
  with the logarithm of SE(3)."""
  title = 'Graphs of poses'
  units = ('poses', '', 'edges')
  names = 'sphere-2500', 'grid-4096', 'sphere-10000'
  pattern = r'(sphere|grid)-(\d+)'

  def make(self, programs, source, folder):
    """A path on a sphere with edges to the ring before, or through a cube in which a
    pose has edges to all its neighbours. The start is the path by its edges."""
    import numpy
    n = int(source[1])
    random = numpy.random.default_rng(n)
    number = numpy.arange(n)
    if source[0] == 'sphere':
      ring = round(n ** 0.5)
      around, height = 2 * numpy.pi * number / ring, numpy.pi * (0.1 + 0.8 * number / n)
      places = 20 * numpy.stack([numpy.sin(height) * numpy.cos(around),
                                 numpy.sin(height) * numpy.sin(around),
                                 numpy.cos(height)], axis=1)
      turns = product(exp(around[:, None] * [0.0, 0.0, 1.0]),
                      exp(height[:, None] * [0.0, 1.0, 0.0]))
      edges = [(i, i + step) for step in (1, ring) for i in range(n - step)]
    else:
      side = round(n ** (1 / 3))
      x, y, z = number % side, number // side % side, number // side ** 2
      # Each row and layer begins where the one before ended.
      x = numpy.where(number // side % 2 == 0, x, side - 1 - x)
      y = numpy.where(z % 2 == 0, y, side - 1 - y)
      places, turns = 2.0 * numpy.stack([x, y, z], 1), exp(random.standard_normal((n, 3)))
      at = {place: i for i, place in enumerate(zip(x, y, z))}
      edges = {tuple(sorted((i, at[x + dx, y + dy, z + dz])))
               for (x, y, z), i in at.items()
               for dx, dy, dz in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
               if (x + dx, y + dy, z + dz) in at}
      edges = sorted(edges, key=lambda edge: (edge[1] - edge[0] > 1, edge))
    truth = numpy.hstack([turns, places])
    sigmas = numpy.array([0.5 / n ** 0.5, 0.05])  # The path ends half a radian wrong.
    a, b = numpy.array(edges).T
    measured = between(truth[a], truth[b])
    noise = numpy.repeat(sigmas, 3) * random.standard_normal((len(a), 6))
    measured[:, :4] = product(measured[:, :4], exp(noise[:, :3]))
    measured[:, 4:] += noise[:, 3:]
    start = truth[:1].copy().repeat(n, axis=0)
    for i, step in enumerate(measured[:n - 1]):
      q = product(start[i, :4], step[:4])
      start[i + 1] = [*(q / numpy.linalg.norm(q)),
                      *(start[i, 4:] + turned(start[i, :4], step[4:]))]
    return save(folder, {'poses': start, 'measurements': measured,
                         'edges': numpy.array(edges, numpy.int32), 'weights': 1 / sigmas})

  def evaluate(self, programs, problem, state):
    import numpy
    data, poses = load(problem), load(state)['poses']
    a, b = data['edges'].T
    error = between(data['measurements'], between(poses[a], poses[b]))
    w, t = log(error[:, :4]), error[:, 4:]
    half = numpy.linalg.norm(w, axis=1, keepdims=True) / 2
    safe = numpy.maximum(half, 1e-3)
    c = numpy.where(half < 1e-3, 1 / 12 + half ** 2 / 180,
                    (1 - safe / numpy.tan(safe)) / (4 * safe ** 2))
    once = numpy.cross(w, t)
    t = t - once / 2 + c * numpy.cross(w, once)
    rows = numpy.hstack([data['weights'][0] * w, data['weights'][1] * t])
    return found((rows ** 2).sum() / 2, poses, data['poses'][:0], a)


class Positions(Kind):
  """Centers of images and points by directions in the world. The cost is
  Σ ½ huber(|d - s (point - center)|²), with the best scale s >= least_scale of each
  direction, which the audit computes."""
  title = 'Positions of images from directions'
  claims_are_bounds = True
  units = ('images', 'points', 'directions')
  names = 'positions-300-near', 'positions-300', 'positions-1000-near'
  pattern = r'positions-(\d+)(-near)?'

  def make(self, programs, source, folder):
    """Images on a path that look along +y; a point is in six of the 20 images around
    it. The start is random, or near: a unit from the truth."""
    import numpy
    n, is_near = int(source[0]), source[1]
    random = numpy.random.default_rng(n)
    number = numpy.arange(n)
    centers = numpy.stack([0.5 * number, 3 * numpy.sin(0.05 * number),
                           0.5 * random.standard_normal(n)], axis=1)
    home = numpy.arange(40 * n) / 40
    points = random.uniform((-3, 8, -3), (3, 14, 3), (len(home), 3))
    points[:, 0] += 0.5 * home
    image = (numpy.clip(home.astype(int) - 10, 0, n - 20)[:, None] +
             random.random((len(home), 20)).argsort(axis=1)[:, :6]).reshape(-1)
    point = numpy.repeat(numpy.arange(len(home)), 6)
    directions = unit(points[point] - centers[image])
    directions = unit(directions + 0.002 * random.standard_normal(directions.shape))
    start = [a + random.standard_normal(a.shape) if is_near else
             random.uniform(-50, 50, a.shape) for a in (centers, points)]
    return save(folder, {'centers': start[0], 'points': start[1],
                         'image_index': image.astype(numpy.int32),
                         'point_index': point.astype(numpy.int32),
                         'directions': directions, 'loss': numpy.array([0.1]),
                         'least_scale': numpy.array([1e-5])})

  def evaluate(self, programs, problem, state):
    import numpy
    data, state = load(problem), load(state)
    d = data['directions']
    seen = (state['points'][data['point_index']] - state['centers'][data['image_index']])
    scale = numpy.maximum((d * seen).sum(axis=1) /
                          numpy.maximum((seen ** 2).sum(axis=1), 1e-300),
                          data['least_scale'])
    square = ((d - scale[:, None] * seen) ** 2).sum(axis=1)
    bound = data['loss'][0]
    rho = numpy.where(square <= bound ** 2, square,
                      2 * bound * numpy.sqrt(square) - bound ** 2)
    return found(rho.sum() / 2, state['centers'], state['points'], d)


class Covariance(Kind):
  """Covariances of all poses of a BAL problem at its values, without a solve; the
  intrinsics and the first two cameras are constant. (n, 6, 6) of w and t, where R
  becomes exp([w]x) R, in pixels. The "cost" is 1 + the largest error of an element,
  in standard deviations, beside those of 32 cameras by numpy: 1 is exact."""
  title = 'Covariances of poses'
  names, pattern = ('covariance-100', 'covariance-400'), r'covariance-(\d+)'
  units = ('cameras', 'points', 'observations')

  def __init__(self):
    self.exact = {}  # (cameras, their blocks) by the path of a problem

  def make(self, programs, source, folder):
    import numpy
    n, truth = int(source[0]), os.path.join(folder, 'truth.npz')
    subprocess.run([programs['bal_generate'], f'--num_cameras={n}',
                    f'--num_points={150 * n}', f'--num_observations={750 * n}',
                    '--truth=' + truth], check=True, stdout=subprocess.DEVNULL)
    return save(folder, dict(load(truth), covariances=numpy.zeros((n, 6, 6))))

  def evaluate(self, programs, problem, state):
    import numpy
    data, given = load(problem), load(state)['covariances']
    if problem not in self.exact:
      self.exact[problem] = exact_covariances(data)
    which, exact = self.exact[problem]
    sigma = numpy.sqrt(numpy.diagonal(exact, axis1=1, axis2=2))
    error = numpy.abs(given[which] - exact) / (sigma[:, :, None] * sigma[:, None, :])
    return found(1 + error.max(), given, data['points'], data['camera_index'])


KINDS = {'bal': Bal(), 'colmap': Colmap(), 'windows': Windows(), 'poses': Poses(),
         'positions': Positions(), 'covariance': Covariance()}


# ------------------------------------------------------------------ numpy


def save(folder, arrays):
  import numpy
  path = os.path.join(folder, 'problem.npz')
  numpy.savez(path, **arrays)
  return path


def load(path):
  import numpy
  return dict(numpy.load(path))


def found(cost, cameras, points, rows):
  """(cost, sizes, what is wrong)."""
  import numpy
  sizes = {'cameras': len(cameras), 'points': len(points), 'observations': len(rows)}
  if not numpy.isfinite(cost):
    return None, sizes, 'its cost is not finite'
  return float(cost), sizes, ''


def unit(vectors):
  import numpy
  return vectors / numpy.linalg.norm(vectors, axis=-1, keepdims=True)


def product(p, q):
  """Products of quaternions w, x, y, z."""
  import numpy
  p, q = numpy.moveaxis(p, -1, 0), numpy.moveaxis(q, -1, 0)
  return numpy.stack([p[0] * q[0] - p[1] * q[1] - p[2] * q[2] - p[3] * q[3],
                      p[0] * q[1] + p[1] * q[0] + p[2] * q[3] - p[3] * q[2],
                      p[0] * q[2] - p[1] * q[3] + p[2] * q[0] + p[3] * q[1],
                      p[0] * q[3] + p[1] * q[2] - p[2] * q[1] + p[3] * q[0]], axis=-1)


def turned(q, vectors):
  """Vectors turned by unit quaternions."""
  import numpy
  twice = 2 * numpy.cross(q[..., 1:], vectors)
  return vectors + q[..., :1] * twice + numpy.cross(q[..., 1:], twice)


def between(a, b):
  """The poses b seen from the poses a."""
  import numpy
  back = a[..., :4] * [1.0, -1.0, -1.0, -1.0]
  return numpy.concatenate([product(back, b[..., :4]),
                            turned(back, b[..., 4:] - a[..., 4:])], axis=-1)


def exp(w):
  """Quaternions of angle-axis vectors; numpy.sinc(x) is sin(pi x) / (pi x)."""
  import numpy
  angle = numpy.linalg.norm(w, axis=-1, keepdims=True)
  return numpy.concatenate([numpy.cos(angle / 2),
                            w * numpy.sinc(angle / (2 * numpy.pi)) / 2], axis=-1)


def log(q):
  """Angle-axis vectors of quaternions."""
  import numpy
  q = q * numpy.where(q[..., :1] < 0, -1.0, 1.0)
  sine = numpy.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
  scale = 2 * numpy.arctan2(sine, q[..., :1]) / numpy.maximum(sine, 1e-300)
  return q[..., 1:] * numpy.where(sine == 0, 2.0, scale)


def projected(cameras, points):
  """Image positions of BAL's model, and R points."""
  import numpy
  moved = turned(exp(cameras[:, :3]), points)
  p = moved + cameras[:, 3:6]
  u = -p[:, :2] / p[:, 2:]
  n = (u ** 2).sum(axis=1, keepdims=True)
  f, k1, k2 = numpy.split(cameras[:, 6:], 3, axis=1)
  return f * (1 + n * (k1 + n * k2)) * u, moved


def exact_covariances(data):
  """32 cameras and their blocks: columns of the inverse of the Schur complement of
  J'J, scaled to a diagonal of ones."""
  import numpy
  by_point = numpy.argsort(data['point_index'], kind='stable')
  camera, point = (data[name][by_point] for name in ('camera_index', 'point_index'))
  c = data['cameras'][camera]
  _, moved = projected(c, data['points'][point])
  p = moved + c[:, 3:6]
  u = -p[:, :2] / p[:, 2:]
  n = (u ** 2).sum(axis=1)
  f, k1, k2 = c[:, 6:].T
  of_u = f[:, None, None] * ((1 + n * (k1 + n * k2))[:, None, None] * numpy.eye(2) +
                             (2 * (k1 + 2 * k2 * n))[:, None, None] *
                             u[:, :, None] * u[:, None, :])
  of_p = numpy.zeros((len(p), 2, 3))
  of_p[:, 0, 0] = of_p[:, 1, 1] = -1 / p[:, 2]
  of_p[:, :, 2] = -u / p[:, 2:]
  of_p = of_u @ of_p
  eye = numpy.eye(3)
  # p moves by w x (R X), and by R dX.
  of_w = numpy.stack([(of_p * numpy.cross(eye[k], moved)[:, None, :]).sum(axis=2)
                      for k in range(3)], axis=2)
  of_point = numpy.stack([(of_p * turned(exp(c[:, :3]), eye[k])[:, None, :]).sum(axis=2)
                          for k in range(3)], axis=2)
  of_pose = numpy.concatenate([of_w, of_p], axis=2)
  v = numpy.zeros((len(data['points']), 3, 3))
  numpy.add.at(v, point, of_point.transpose(0, 2, 1) @ of_point)
  w = of_pose.transpose(0, 2, 1) @ of_point
  count = len(data['cameras'])
  s = numpy.zeros((count, count, 6, 6))
  numpy.add.at(s, (camera, camera), of_pose.transpose(0, 2, 1) @ of_pose)
  part = w @ numpy.linalg.inv(v)[point]
  numpy.subtract.at(s, (camera, camera), part @ w.transpose(0, 2, 1))
  for apart in range(1, int(numpy.bincount(point).max())):
    a = numpy.flatnonzero(point[apart:] == point[:-apart])
    block = part[a] @ w[a + apart].transpose(0, 2, 1)
    numpy.subtract.at(s, (camera[a], camera[a + apart]), block)
    numpy.subtract.at(s, (camera[a + apart], camera[a]), block.transpose(0, 2, 1))
  s = s[2:, 2:].transpose(0, 2, 1, 3).reshape(6 * (count - 2), -1)
  scale = 1 / numpy.sqrt(numpy.diagonal(s))
  which = numpy.unique(numpy.linspace(0, count - 3, 32).astype(int))
  columns = (6 * which[:, None] + numpy.arange(6)).reshape(-1)
  unit_columns = numpy.zeros((len(s), len(columns)))
  unit_columns[columns, numpy.arange(len(columns))] = 1
  found_columns = numpy.linalg.solve(s * scale[:, None] * scale, unit_columns)
  found_columns = found_columns * scale[:, None] * scale[columns]
  blocks = numpy.stack([found_columns[6 * k:6 * k + 6, 6 * i:6 * i + 6]
                        for i, k in enumerate(which)])
  return which + 2, (blocks + blocks.transpose(0, 2, 1)) / 2
