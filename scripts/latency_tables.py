#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Prints the tables of the study of latency, from records of scripts/measure.

  scripts/latency_tables.py FOLDER [--operations=OPERATIONS.csv]

FOLDER has resources.jsonl, steps.jsonl, parallel.jsonl, streams.jsonl and
single.jsonl of batch_benchmark, and timeline_WINDOW.csv; a table whose file is
missing or empty says so. OPERATIONS.csv has the fusions to check, default
docs/measurements/gpu/operations.csv. The paper's numbers are those of Nourazar,
Booth and Goossens 2023, Tables 1 to 3.

An inflection point is the rate with the largest throughput divided by the
median latency, among those that a size of submissions keeps up with. It keeps
up if it solves 9/10 of the windows per second that arrive: a stream is short,
and the time from the last arrival to its result counts.
"""

import argparse
import csv
import json
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True  # Leaves no folder in scripts/.
sys.path.insert(0, str(ROOT / 'scripts' / 'lib'))
from gpu_runs import number, table as markdown  # pylint: disable=wrong-import-position

PAPER_RESOURCES = {
    'multiprocessors': ('8', '84'),
    'threads_per_multiprocessor': ('2048', '1536'),
    'registers_per_block': ('65536', '65536'),
    'shared_kb_per_multiprocessor': ('96', '100'),
    'memory_gb_per_second': ('136.5', '768'),
    'shared_gb_per_second': ('1536', '19350'),
}
PAPER_PARALLEL = {1: (22e3, 55e3), 2: (33e3, 85e3), 4: (56e3, 125e3),
                  8: (87e3, 170e3), 16: (106e3, 200e3), 32: (106e3, 222e3)}
# Microseconds per frame.
PAPER_STEPS = [
    ('initial implementation', 7000, 3500),
    ('computation pruning', 2500, 600),
    ('intra-kernel optimizations', 900, 310),
    ('initial kernel fusion', 350, 130),
    ('unconditional launches', 280, 120),
    ('three more fusions', 95, 42),
    ('grid-level synchronization, one kernel', 63, 31),
    ('persistent kernel', 45, 18),
]
KEEPS_UP = 0.9
# Microseconds of a graph launch on one H200, which a persistent kernel avoids.
GRAPH_LAUNCH_US = 9.7


def read(folder, step):
  path = folder / (step + '.jsonl')
  if not path.exists():
    return []
  return [json.loads(line) for line in path.read_text().splitlines() if line]


def show(header, rows):
  print(markdown(header, rows))


def section(title, rows):
  """True if there is something to show."""
  print('## ' + title + '\n')
  if not rows:
    print('Not measured.\n')
  return bool(rows)


def windows_of(rows):
  return sorted({row['window'] for row in rows})


def show_resources(rows):
  if not section("Table 1: resources of the GPU", rows):
    return
  row = rows[0]
  show(['', row['device'], 'Xavier AGX (paper)', 'RTX A6000 (paper)'],
       [[key.replace('_', ' '), value, *PAPER_RESOURCES.get(key, ('–', '–'))]
        for key, value in row.items() if key not in ('mode', 'device')])


def step_name(row):
  name = {'stock': 'stock Ceres'}.get(row['machine'])
  if name is None and row['machine'].endswith('_solve'):
    name = 'ordinary path, ceres_ext::Solve, ' + row['ext_options']
  elif name is None:
    name = 'one kernel per solve'
  if row['constant_cameras'] > 0:
    name += ', %d cameras constant' % row['constant_cameras']
  return name


def show_steps(rows):
  if not section('Table 2: microseconds per window after each step', rows):
    return
  for window in windows_of(rows):
    table = []
    for row in rows:
      if row['window'] == window:
        table.append([step_name(row), row['machine'].split('_')[0],
                      number(1e3 * row['single_ms_p50']),
                      number(1e3 * row['single_ms_p99']), row['count'],
                      number(1e6 / row['windows_per_second'])])
    print(window + ':\n')
    show(['step', 'machine', 'alone, p50', 'alone, p99', 'windows', 'each'],
         table)
  print('The paper, microseconds per frame:\n')
  show(['step', 'Xavier AGX', 'RTX A6000'], PAPER_STEPS)


def show_parallel(rows):
  if not section('Table 3: windows per second by the number in parallel', rows):
    return
  windows = windows_of(rows)
  rates = {(row['window'], row['count']): row['windows_per_second']
           for row in rows}
  table = []
  for count in sorted({row['count'] for row in rows}):
    line = [count]
    for window in windows:
      rate, first = rates.get((window, count)), rates.get((window, 1))
      line.append('–' if rate is None else number(rate) if not first else
                  '%s (%.1f x)' % (number(rate), rate / first))
    for machine in range(2):
      paper = PAPER_PARALLEL.get(count)
      line.append('–' if paper is None else '%.0f (%.1f x)' % (
          paper[machine], paper[machine] / PAPER_PARALLEL[1][machine]))
    table.append(line)
  show(['in parallel', *windows, 'frames, Xavier AGX (paper)',
        'frames, RTX A6000 (paper)'], table)


def keeps_up(row):
  return row['windows_per_second'] >= KEEPS_UP * row['arrived_per_second']


def inflection(curve):
  """The row at the inflection point of a curve, or None."""
  rows = [row for row in curve if row['latency_ms_p50'] > 0 and keeps_up(row)]
  return max(rows, default=None, key=lambda row:
             row['windows_per_second'] / row['latency_ms_p50'])


def latency(row):
  if row['windows'] == 0:
    return '–'
  text = '%s / %s' % (number(row['latency_ms_p50']),
                      number(row['latency_ms_p99']))
  return text if keeps_up(row) else '%s per second at most' % number(
      row['windows_per_second'])


def show_streams(rows):
  streams = [row for row in rows if row['mode'] == 'stream']
  if not section('Figure 8: latency against throughput', streams):
    return
  print('Milliseconds from arrival to result, the wait for the submission '
        'included, p50 / p99.\n')
  for window in windows_of(streams):
    of_window = [row for row in rows if row['window'] == window]
    streams = [row for row in of_window if row['mode'] == 'stream']
    sizes = sorted({row['batch'] for row in streams})
    offered = sorted({row['offered_per_second'] for row in streams})
    for arrivals in ('fixed', 'poisson'):
      cells = {(row['offered_per_second'], row['batch']): row
               for row in streams if row['arrivals'] == arrivals}
      print('%s, %s arrivals:\n' % (window, arrivals))
      show([window + ' per second', *('of %d' % size for size in sizes)],
           [[number(rate), *(latency(cells[rate, size])
                             if (rate, size) in cells else '–'
                             for size in sizes)] for rate in offered])
    table = []
    for size in sizes:
      curve = [row for row in streams
               if row['batch'] == size and row['arrivals'] == 'poisson']
      point = inflection(curve)
      table.append([
          size,
          number(max((row['windows_per_second'] for row in curve), default=0)),
          *((number(point['windows_per_second']),
             number(point['latency_ms_p50'])) if point else ('–', '–'))])
    print('Inflection points of %s, Poisson arrivals:\n' % window)
    show(['submissions of', 'saturation, per second', 'inflection, per second',
          'p50 there, ms'], table)
    show_choices(of_window)


def show_choices(rows):
  """The size that the rule takes beside the best one that was measured."""
  rates = {row['batch']: row['windows_per_second']
           for row in rows if row['mode'] == 'rates'}
  table = []
  for choice in rows:
    if choice['mode'] != 'choice':
      continue
    at_rate = [row for row in rows if row['mode'] == 'stream' and
               row['arrivals'] == 'poisson' and row['windows'] > 0 and
               row['offered_per_second'] == choice['offered_per_second'] and
               keeps_up(row)]
    best = min(at_rate, key=lambda row: row['latency_ms_p99'], default=None)
    ours = next((row for row in at_rate if row['batch'] == choice['batch']),
                None)
    table.append([
        number(choice['offered_per_second']), choice['batch'],
        number(rates.get(choice['batch'])),
        number(ours['latency_ms_p99'] if ours else None),
        best['batch'] if best else '–',
        number(best['latency_ms_p99'] if best else None)])
  if table:
    print('The size that ChooseSubmissionSize takes, and the one with the '
          'lowest p99 of those that keep up, Poisson arrivals:\n')
    show(['wanted per second', 'chosen', 'its rate', 'its p99, ms', 'best',
          'its p99, ms'], table)


def kernels_of(path):
  """Median microseconds per submission in window kernels, and in copies."""
  kernels, copies = [], 0.0
  with open(path, newline='') as file:
    for row in csv.DictReader(file):
      seconds = 1e-9 * (int(row['end_ns']) - int(row['start_ns']))
      if 'SolveWindow' in row['name'] and row['kind'] == 'kernel':
        kernels.append(1e6 * seconds)
      elif row['kind'].startswith(('copy', 'memset')):
        copies += 1e6 * seconds
  if not kernels:
    return None, None
  return statistics.median(kernels), copies / len(kernels)


def show_single(rows, folder):
  submissions = [row for row in rows if row['mode'] == 'submissions']
  if not section('One window at a time: jitter, and the bound of a persistent '
                 'kernel', submissions):
    return
  show(['window', 'iterations', 'Submit, ms', 'Wait, ms', 'p50', 'p99', 'max',
        'p99 / p50'],
       [[row['window'], row['iterations'], number(row['submit_ms_p50']),
         number(row['wait_ms_p50']), number(row['latency_ms_p50']),
         number(row['latency_ms_p99']), number(row['latency_ms_max']),
         number(row['latency_ms_p99'] / row['latency_ms_p50'])]
        for row in submissions])
  print('Without iterations, microseconds. The remainder is what is neither '
        'packing nor the kernel: copies, launches and waits. A persistent '
        'kernel saves at most that, and is kept only if it saves more than a '
        'graph launch, %.1f.\n' % GRAPH_LAUNCH_US)
  table = []
  for window in windows_of(submissions):
    whole = next((row for row in submissions if row['window'] == window and
                  row['iterations'] == 0), None)
    if whole is None:
      continue
    pack = next((1e3 * row['single_pack_ms_p50'] for row in rows
                 if row['mode'] == 'batch' and row['window'] == window), None)
    path = folder / ('timeline_%s.csv' % window)
    kernel, copies = kernels_of(path) if path.exists() else (None, None)
    total = 1e3 * whole['latency_ms_p50']
    remainder = None
    if pack is not None and kernel is not None:
      remainder = total - pack - kernel
    table.append([window, number(total), number(pack), number(kernel),
                  number(copies), number(remainder)])
  show(['window', 'Submit to result', 'packing', 'kernel, traced',
        'of the remainder copies, traced', 'remainder'], table)


def show_fusions(path):
  """The paper's rule: fuse A and B in one if A + B - DR < 2 max(A, B), where DR
  is the time that data used again save, so A + B - DR is that of the fusion."""
  with open(path, newline='') as file:
    operations = {row['operation']: row for row in csv.DictReader(file)}
  table = []
  for jacobian in ('double stored', 'double recomputed'):
    for problem in ('sequence, ms', 'city, ms'):
      a, b, fused = (float(operations['%s %s' % (jacobian, name)][problem])
                     for name in ('J x', "J'y", "(J'J + D^2) p"))
      fuses = fused < 2 * max(a, b)
      table.append([
          "%s (J'J + D^2) p, %s" % (jacobian, problem.split(',')[0]),
          *('%.3f' % value
            for value in (a, b, a + b - fused, fused, 2 * max(a, b))),
          'fuse' if fuses else 'apart',
          'holds' if fuses == (fused < a + b) else 'does not hold'])
  section('The rule for fusion, (A + B - DR) < 2 max(A, B)', table)
  print("A is J x and B is J'y, both of every observation. Milliseconds of "
        'docs/measurements/gpu.md. The rule holds if what it says is faster '
        'than A and then B.\n')
  show(['fusion', 'A', 'B', 'DR', 'A + B - DR', '2 max(A, B)', 'the rule says',
        'measured'], table)


def main():
  parser = argparse.ArgumentParser(
      description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument('folder', type=pathlib.Path)
  parser.add_argument('--operations', type=pathlib.Path, default=ROOT / 'docs' /
                      'measurements' / 'gpu' / 'operations.csv')
  arguments = parser.parse_args()
  if not arguments.folder.is_dir():
    parser.error('%s is not a folder' % arguments.folder)
  print('Machine: %s.\n' % ', '.join(sorted(
      {row['device'] for step in ('resources', 'parallel', 'single')
       for row in read(arguments.folder, step) if row.get('device')}) or
      ['not recorded']))
  show_resources(read(arguments.folder, 'resources'))
  show_steps(read(arguments.folder, 'steps'))
  show_parallel(read(arguments.folder, 'parallel'))
  show_streams(read(arguments.folder, 'streams'))
  show_single(read(arguments.folder, 'single'), arguments.folder)
  show_fusions(arguments.operations)
  return 0


if __name__ == '__main__':
  sys.exit(main())
