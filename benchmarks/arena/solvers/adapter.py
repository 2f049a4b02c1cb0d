# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The side of a solver in the arena's protocol (benchmarks/arena/README.md)."""
import contextlib
import json
import os
import subprocess
import sys
import time

# Arrays of a state by the kind of problem (arena_kinds.py).
ARRAYS = {'bal': ('cameras', 'points'), 'windows': ('cameras', 'points'),
          'poses': ('poses',), 'positions': ('centers', 'points'),
          'covariance': ('covariances',)}


class Job:
  """A problem to solve once. Fields, from the arena: kind, problem, setting,
  iterations, threads, seconds, states, folder, work, programs."""

  def __init__(self, path):
    with open(path, encoding='utf-8') as file:
      self.__dict__.update(json.load(file))
    self.columns, self.stamps, self.message = {}, [], ''
    self.initial_cost = None
    self._begin, self._waited = None, 0.0

  @contextlib.contextmanager
  def column(self, name):
    """Its seconds are a column: set_up, start_of_cuda, compile or transfer."""
    begin = time.perf_counter()
    yield
    self.columns[name] = (self.columns.get(name, 0.0) + time.perf_counter() - begin)

  def arrays(self):
    """The arrays of a problem by name; of a model there are none."""
    import numpy  # pylint: disable=import-outside-toplevel
    return dict(numpy.load(self.problem))

  def begin(self):
    """Begins the clock, right before the call that solves."""
    self._begin, self._waited = time.perf_counter(), 0.0

  def now(self):
    """Seconds of the clock."""
    return time.perf_counter() - self._begin - self._waited

  def seconds_left(self):
    return self.seconds - self.now()

  def looks_at(self, iteration):
    """True if a solve that ends at this iteration should show its state."""
    count = 1
    while count < iteration:
      count = max(count + 1, count * 4 // 3)
    return count == iteration and self.seconds_left() > 0

  def stamp(self, state=None, cost=None, seconds=None):
    """The solver has this state now, or had it at these seconds: a tuple of the kind's
    ARRAYS, or a file or folder. cost: the solver's own. Writing stops the clock."""
    now, seconds_are_now = time.perf_counter(), seconds is None
    if seconds_are_now:
      seconds = self.now()
    if isinstance(state, tuple):
      import numpy  # pylint: disable=import-outside-toplevel
      path = os.path.join(self.folder, f'state{len(self.stamps)}.npz')
      numpy.savez(path, **{name: numpy.ascontiguousarray(array, numpy.float64)
                           for name, array in zip(ARRAYS[self.kind], state)})
      state = path
    self.stamps.append({'seconds': seconds, 'cost': cost, 'state': state})
    if seconds_are_now:
      self._waited += time.perf_counter() - now

  def write(self):
    with open(os.path.join(self.folder, 'result.json'), 'w', encoding='utf-8') as file:
      json.dump({'columns': self.columns, 'stamps': self.stamps,
                 'initial_cost': self.initial_cost, 'message': self.message}, file)


def solve_by_program(job, flags, is_stock=False):
  """bundle_adjuster, colmap_adjuster or arena_solve, whose report has a cost and
  seconds for each iteration. Some states between come from runs that end there.
  flags: options of this library, or flags of bundle_adjuster for stock Ceres. The
  setting's `radius` is Ceres's initial one, for problems of arena_solve."""
  is_model = job.kind == 'colmap'
  name = {'bal': 'bundle_adjuster', 'colmap': 'colmap_adjuster'}.get(job.kind,
                                                                    'arena_solve')
  most = 'num_iterations'
  flags = [*flags, *['--solver=ceres'] * is_stock]
  if name == 'arena_solve':
    flags = (['--solver=ceres'] if is_stock else
             ['--settings=' + ','.join(flag[2:] for flag in flags)])
    flags.append('--kind=' + job.kind)
    if 'radius' in job.setting:
      flags.append(f'--initial_trust_region_radius={job.setting["radius"]}')
  read, write = '--input=', '--output='
  if is_model:
    most, read, write = 'max_num_iterations', '--input_path=', '--output_path='

  # With eight threads of OpenBLAS a step of CHOLMOD on 2,500 poses took 5 s, with one
  # 0.07.
  environment = dict(os.environ, OPENBLAS_NUM_THREADS='1')

  def run(iterations, name_of_state):
    path = os.path.join(job.folder, name_of_state + ('' if is_model else '.npz'))
    report = os.path.join(job.folder, name_of_state + '.json')
    if is_model:
      os.makedirs(path, exist_ok=True)
    done = subprocess.run(
        [job.programs[name], read + job.problem, write + path,
         '--report_json=' + report, f'--{most}={iterations}',
         f'--num_threads={job.threads}', f'--max_solver_time={job.seconds}', *flags],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
        env=environment)
    if done.returncode not in (0, 3) or not os.path.exists(report):
      lines = done.stderr.strip().splitlines()
      raise RuntimeError(lines[-1] if lines else f'exit code {done.returncode}')
    with open(report, encoding='utf-8') as file:
      return json.load(file), path

  job.begin()
  report, last = run(job.iterations, 'last')
  if not report['summary']['is_solution_usable']:
    raise RuntimeError(report['summary']['message'])
  ext = report.get('ceres_ext', {})
  if not is_stock and ext.get('path') != 'FULL':
    raise RuntimeError('Ceres alone solved it: ' + ext.get('path_reason', ''))
  cuda = ext.get('context_time_in_seconds', 0.0)
  job.columns = {'read': report['problem']['read_time_in_seconds'],
                 'set_up': report['problem']['build_time_in_seconds'],
                 'start_of_cuda': cuda}
  job.initial_cost = report['summary']['initial_cost']
  job.message = report['summary']['message']
  steps = [step for step in report['iterations'] if step['step_is_successful']]
  # Each state between takes a process.
  between = {len(steps) // 3, 2 * len(steps) // 3} if job.states else ()
  for place, step in enumerate(steps):
    state, number = (last if step is steps[-1] else None), step['iteration']
    if state is None and number > 0 and place in between and job.seconds_left() > 0:
      state = run(number, f'state{number}')[1]
    job.stamp(state, step['cost'], step['cumulative_time_in_seconds'] - cuda)


def main(spec, solve, prepare=None):
  """The command line of a solver."""
  command = sys.argv[1]
  if command == 'describe':
    print(json.dumps(dict(spec, prepares=prepare is not None)))
    return
  job = Job(sys.argv[2])
  try:
    (solve if command == 'solve' else prepare)(job)
  except Exception as error:  # pylint: disable=broad-exception-caught
    sys.exit(f'{type(error).__name__}: {error}')
  job.write()
