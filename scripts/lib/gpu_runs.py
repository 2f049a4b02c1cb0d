# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The common part of gpu_compare and gpu_alternate: programs of built folders,
run one after the other on a GPU until the time is over, and a record of them."""
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


def final_cost(report):
  return report['summary']['final_cost']


def minimizer(report):
  return report['summary']['minimizer_time_in_seconds']


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
    with open(self.path, 'w', encoding='utf-8') as file:
      json.dump(self.record, file, indent=1)

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
