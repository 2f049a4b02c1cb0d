# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The common part of the scripts that measure: built programs, run one after the
other until the time is over, their reports, a record, and tables of it."""
import json
import os
import subprocess
import sys
import tempfile
import time

DEVICE = ['--device=cuda', '--fallback=refuse']
VARIANTS = {'double stored': ['--jacobian=stored'],
            'double recomputed': ['--jacobian=recomputed'],
            'mixed stored': ['--jacobian=stored', '--precision=mixed'],
            'mixed recomputed': ['--jacobian=recomputed', '--precision=mixed']}
# Flags of bal_generate for a start a tenth as far from the truth as usual.
NEAR = ['--drift_rotation=0.001', '--drift_translation=0.03',
        '--focal_noise=0.001', '--point_noise=0.0005']


def final_cost(report):
  return report['summary']['final_cost']


def minimizer(report):
  return report['summary']['minimizer_time_in_seconds']


def find(folder, name, required=True):
  """The program or library of this name in the folder or below it."""
  for where, _, files in os.walk(folder):
    path = os.path.join(where, name)
    if name in files and (name.endswith('.so') or os.access(path, os.X_OK)):
      return path
  if required:
    sys.exit('error: expected %s in %s, found none' % (name, folder))
  return None


def table(header, rows):
  """Rows of cells as Markdown."""
  lines = ['| ' + ' | '.join(header) + ' |', '|' + '---|' * len(header)]
  lines += ['| ' + ' | '.join(map(str, row)) + ' |' for row in rows]
  return '\n'.join(lines) + '\n'


def number(value, scale=1.0):
  """Three significant digits, without an exponent; a dash for None."""
  if value is None:
    return '–'
  value *= scale
  digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
  return '%.*f' % (digits, value)


def solve(program, flags, log=subprocess.DEVNULL, timeout=None):
  """(report, what it says if there is none) of bundle_adjuster or
  colmap_adjuster. A solve that failed (exit status 3) has a report."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'report.json')
    command = [program, '--report_json=' + path] + flags
    if 'colmap' in os.path.basename(program):
      command.append('--output_path=' + folder)
    try:
      done = subprocess.run(command, stdout=subprocess.DEVNULL,
                            stderr=log, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
      return None, 'killed after %g s' % timeout
    if done.returncode not in (0, 3) or not os.path.exists(path):
      said = (done.stderr or b'').decode().strip().splitlines()
      return None, said[-1] if said else 'failed'
    with open(path, encoding='utf-8') as file:
      return json.load(file), ''


def models(data):
  """(name, program, flag of the input) of the BAL files and COLMAP models that
  the folders, separated by commas, hold."""
  for path in sorted(os.path.join(folder, name)
                     for folder in data.split(',') if folder
                     for name in os.listdir(folder)):
    name = os.path.basename(path)
    if name.endswith('.txt.bz2') or name.endswith('.txt.gz'):
      yield name.split('.')[0], 'bundle_adjuster', '--input=' + path
      continue
    for folder in (path, os.path.join(path, 'local')):
      if any(os.path.exists(os.path.join(folder, 'cameras' + kind))
             for kind in ('.bin', '.txt')):
        yield name, 'colmap_adjuster', '--input_path=' + folder


def write(path, record):
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(record, file, indent=1)


class Runs:

  def __init__(self, out, seconds, name):
    """Writes OUT/NAME.json and begins nothing after the seconds."""
    os.makedirs(out, exist_ok=True)
    self.out = out
    self.path = os.path.join(out, name + '.json')
    self.deadline = time.time() + seconds
    gpu = subprocess.run(['nvidia-smi', '--query-gpu=name,driver_version',
                          '--format=csv,noheader'], stdout=subprocess.PIPE,
                         check=True)
    self.record = {'gpu': gpu.stdout.decode().strip(),
                   'date': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}
    print(self.record['gpu'], self.record['date'])

  def left(self):
    return self.deadline - time.time()

  def save(self):
    write(self.path, self.record)

  def run(self, folder, program, *flags, env=None):
    """(exit status, what it printed); status 124 where no time is left.

    Libraries in the folder are found first."""
    if self.left() < 10:
      return 124, 'no time left'
    folder = os.path.abspath(folder)
    libraries = folder + ':' + os.environ.get('LD_LIBRARY_PATH', '')
    try:
      result = subprocess.run(
          [os.path.join(folder, program)] + list(flags), timeout=self.left(),
          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
          env=dict(os.environ, LD_LIBRARY_PATH=libraries, **(env or {})))
    except subprocess.TimeoutExpired:
      return 124, 'timed out'
    return result.returncode, result.stdout.decode()

  def report(self, folder, program, *flags, env=None):
    """The JSON report of one run of bundle_adjuster or shapes_solve, or None
    with the reason printed. A solve that failed (exit status 3) has one."""
    with tempfile.TemporaryDirectory() as folder_of_report:
      path = os.path.join(folder_of_report, 'report.json')
      status, text = self.run(folder, program, '--report_json=' + path, *flags,
                              env=env)
      if status not in (0, 3) or not os.path.exists(path):
        print('  %s, exit status %d: %s\n%s' %
              (program, status, ' '.join(flags), text[-2000:]), flush=True)
        return None
      with open(path, encoding='utf-8') as file:
        return json.load(file)

  def generate(self, folder, like, seed, *flags):
    """A problem of bal_generate."""
    name = '-'.join(['%s-seed%d' % (like, seed)] +
                    [flag.strip('-').replace('=', '') for flag in flags])
    path = os.path.join('/tmp', name + '.txt')
    if not os.path.exists(path):
      # Under its name when it is whole.
      status, text = self.run(folder, 'bal_generate', '--like=' + like,
                              '--seed=%d' % seed, '--output=' + path + '.part',
                              *flags)
      if status != 0:
        sys.exit('bal_generate, exit status %d: %s' % (status, text))
      os.rename(path + '.part', path)
    return path


def run_parts(parts, names):
  """parts: functions by name; names: those to call, separated by commas."""
  for name in names.split(','):
    if name not in parts:
      sys.exit('unknown part %s; known: %s' % (name, ', '.join(parts)))
  for name in names.split(','):
    print('\n== ' + name, flush=True)
    parts[name]()
