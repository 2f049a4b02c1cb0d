#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Prints where the time of a solve on a GPU went.

  scripts/timeline_table.py TIMELINE.csv [--report=REPORT.json] [--rows=N]

TIMELINE.csv is what benchmarks/cuda_timeline.cc writes, REPORT.json the report
of the same run of bundle_adjuster. The window is the trust-region loop: from
the first PrepareCamerasKernel, which only evaluation launches (the set-up,
which sorts and cuts tiles, comes before), to the end of the last kernel or
copy.

Busy is the union of intervals, so that what overlaps counts once. With a
report, overhead is what of minimizer_time_in_seconds no kernel runs:
(minimizer time - busy time of kernels) / minimizer time. Copies, waiting for
the host and the tracing itself are part of it.
"""

import argparse
import csv
import functools
import json
import re
import sys

FIRST_KERNEL = 'PrepareCamerasKernel'


@functools.lru_cache(maxsize=None)
def short_name(text):
  """"void a::(anonymous namespace)::Kernel<a::T, (int)9>(a::Params)" becomes
  "Kernel<T, 9>"."""
  text = text.replace('(anonymous namespace)::', '').replace('(int)', '')
  begin = depth = 0
  for i, c in enumerate(text):
    if c == '<':
      depth += 1
    elif c == '>' and text[i - 1] != '-':
      depth -= 1
    elif depth == 0 and c == '(':
      text = text[:i]
      break
    elif depth == 0 and c in ' :':
      begin = i + 1  # Behind the type of what it returns, or a namespace.
  return re.sub(r'\w+::| +(?=>)', '', text[begin:])


def read(path):
  """[(kind, name, bytes, start, end)] in the order of starts, in seconds."""
  activities = []
  with open(path, newline='') as file:
    for row in csv.DictReader(file):
      name = short_name(row['name']) or row['kind']
      activities.append((row['kind'], name, int(row['bytes']),
                         1e-9 * int(row['start_ns']),
                         1e-9 * int(row['end_ns'])))
  activities.sort(key=lambda activity: activity[3])
  return activities


def busy(activities):
  """Seconds in which at least one of the activities runs."""
  seconds = 0.0
  covered = float('-inf')
  for _, _, _, start, end in activities:
    seconds += max(0.0, end - max(start, covered))
    covered = max(covered, end)
  return seconds


def find_gaps(activities):
  """[(seconds, begin, what ended last, what starts next)], largest first."""
  gaps = []
  covered = None
  last = None
  for _, name, _, start, end in activities:
    if covered is not None and start > covered:
      gaps.append((start - covered, covered, last, name))
    if covered is None or end > covered:
      covered = end
      last = name
  return sorted(gaps, key=lambda gap: -gap[0])


def analyze(path, minimizer_seconds=None):
  """The numbers of the table, or None where no kernel was recorded."""
  activities = read(path)
  begin = next((i for i, activity in enumerate(activities)
                if activity[1].startswith(FIRST_KERNEL)), None)
  found_loop = begin is not None
  window = activities[begin or 0:]
  kernels = [activity for activity in window if activity[0] == 'kernel']
  if not kernels:
    return None
  copies = [activity for activity in window if activity[0] != 'kernel']
  start = window[0][3]
  seconds = max(activity[4] for activity in window) - start

  names = {}
  for kind, name, num_bytes, first, end in window:
    row = names.setdefault(name, {'name': name, 'calls': 0, 'seconds': 0.0,
                                  'bytes': 0})
    row['calls'] += 1
    row['seconds'] += end - first
    row['bytes'] += num_bytes
  gaps = find_gaps(window)
  result = {
      'starts_with': FIRST_KERNEL if found_loop else window[0][1],
      'window_seconds': seconds,
      'launches': len(kernels),
      'kernel_busy_seconds': busy(kernels),
      'copies_and_memsets': len(copies),
      'copy_busy_seconds': busy(copies),
      'busy_seconds': busy(window),
      'gaps': len(gaps),
      'gap_seconds': sum(gap[0] for gap in gaps),
      'rows': sorted(names.values(), key=lambda row: -row['seconds']),
      'largest_gaps': [{'seconds': gap[0], 'at': gap[1] - start,
                        'after': gap[2], 'before': gap[3]}
                       for gap in gaps[:10]],
  }
  if minimizer_seconds:
    result['minimizer_seconds'] = minimizer_seconds
    result['overhead'] = (
        1.0 - result['kernel_busy_seconds'] / minimizer_seconds)
  return result


def show(result, rows=20, file=sys.stdout):
  def line(text):
    print(text, file=file)

  line('from the first %s: %.3f ms' %
       (result['starts_with'], 1e3 * result['window_seconds']))
  line('  %6d launches, kernels busy   %9.3f ms' %
       (result['launches'], 1e3 * result['kernel_busy_seconds']))
  line('  %6d copies and memsets, busy %9.3f ms' %
       (result['copies_and_memsets'], 1e3 * result['copy_busy_seconds']))
  line('  %6d gaps, nothing runs       %9.3f ms' %
       (result['gaps'], 1e3 * result['gap_seconds']))
  if 'overhead' in result:
    line('  minimizer %.3f ms, outside kernels %.1f %%' %
         (1e3 * result['minimizer_seconds'], 100.0 * result['overhead']))
  line('%-60s %6s %9s %8s %7s' %
       ('kernel or copy', 'calls', 'ms', 'us each', 'share'))
  for row in result['rows'][:rows]:
    line('%-60s %6d %9.3f %8.1f %5.1f %%' %
         (row['name'][:60], row['calls'], 1e3 * row['seconds'],
          1e6 * row['seconds'] / row['calls'],
          100.0 * row['seconds'] / result['window_seconds']))
  rest = result['rows'][rows:]
  if rest:
    line('%-60s %6d %9.3f' %
         ('%d more' % len(rest), sum(row['calls'] for row in rest),
          1e3 * sum(row['seconds'] for row in rest)))
  line('%-9s %-9s %s' % ('gap us', 'at ms', 'between'))
  for gap in result['largest_gaps']:
    line('%-9.1f %-9.3f %s -> %s' %
         (1e6 * gap['seconds'], 1e3 * gap['at'], gap['after'][:34],
          gap['before'][:34]))


def main():
  parser = argparse.ArgumentParser(
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('timeline')
  parser.add_argument('--report', default='')
  parser.add_argument('--rows', type=int, default=20)
  args = parser.parse_args()
  seconds = None
  if args.report:
    with open(args.report) as file:
      seconds = json.load(file)['summary']['minimizer_time_in_seconds']
  result = analyze(args.timeline, seconds)
  if result is None:
    sys.exit('%s: expected kernels, found none' % args.timeline)
  if result['starts_with'] != FIRST_KERNEL:
    print('no %s: the window begins with the first activity' % FIRST_KERNEL)
  show(result, args.rows)


if __name__ == '__main__':
  main()
