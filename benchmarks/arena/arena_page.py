# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The page of the arena: tables and plots of its records."""
import json
import math
import os
import pathlib
import statistics

from arena_kinds import KINDS
from gpu_runs import table

HERE = pathlib.Path(__file__).resolve().parent
OURS = 'ceres_ext'
# "The end" is a part of the cost that no user sees.
TARGETS = (('1 %', 0.01), ('0.1 %', 0.001), ('the end', 1e-5))
COLUMNS = ('set_up', 'start_of_cuda', 'compile', 'transfer')
COLORS = {'ceres_ext': '#1b6ca8', 'stock_ceres': '#a65a00', 'gtsam': '#2a9d5c',
          'pycolmap': '#d9a441', 'jaxls': '#8e5ea2', 'caspar': '#c0504d'}


def number(value):
  """Three significant digits, without an exponent for usual sizes; a dash for none."""
  if value is None or math.isinf(value):
    return '–'
  return f'{value:.3g}' if value < 1000 else f'{value:,.0f}'


def solver_of(cell):
  return cell.split(':', 1)[0]


class Cell:
  """The runs of a solver with a setting on a problem."""

  def __init__(self, runs):
    self.runs = sorted(runs, key=lambda run: run['run'])
    self.solved = [run for run in self.runs if run['ending'] == 'solved']
    self.counts = bool(self.solved) and len(self.solved) == len(self.runs)

  def costs(self):
    """Audited costs of all runs."""
    return [cost for run in self.solved for _, cost, audited in run['stamps'] if audited]

  def seconds_to(self, cost):
    """The median of the runs, inf if half of them do not reach the cost. A cell with
    a failed run has none."""
    if not self.counts:
      return math.inf
    return statistics.median(min((s for s, at, _ in run['stamps'] if at <= cost),
                                 default=math.inf) for run in self.solved)

  def column(self, name):
    values = [run['columns'][name] for run in self.solved if name in run['columns']]
    return statistics.median(values) if values else None

  def around(self):
    """Seconds of set-up and transfers, which a solver that is given arrays takes too."""
    return (self.column('set_up') or 0.0) + (self.column('transfer') or 0.0)

  def compile_seconds(self):
    """The most of all runs: later ones may find what the first compiled."""
    return max((run['columns']['compile'] for run in self.solved
                if 'compile' in run['columns']), default=None)

  def most(self, name):
    return max((run.get(name, 0) for run in self.solved), default=0)

  def same_bits(self):
    if len(self.solved) < 2:
      return '–'
    return 'yes' if len({run['bits'] for run in self.solved}) == 1 else 'no'


class Record:

  def __init__(self, paths, us):
    self.us = us
    self.machines, self.facts, runs = [], {}, {}
    for path in paths:
      with open(path, encoding='utf-8') as file:
        for line in map(json.loads, file):
          if 'machine' in line:
            if line['machine'] not in self.machines:
              self.machines.append(line['machine'])
            continue
          self.facts[line['problem']] = line
          runs.setdefault((line['problem'], line['cell']), {})[line['run']] = line
    self.cells = {key: Cell(of.values()) for key, of in runs.items()}
    self.problems = sorted(self.facts, key=lambda name: (
        list(KINDS).index(self.facts[name]['kind']), self.facts[name]['observations'],
        name))
    self.best = {}
    for (problem, _), cell in self.cells.items():
      for cost in cell.costs():
        self.best[problem] = min(cost, self.best.get(problem, math.inf))
    for problem in self.best:
      if self.facts[problem]['kind'] == 'covariance':
        self.best[problem] = 1.0  # 1 + the largest error.

  def of(self, problem):
    """(cell's name, cell) of a problem, ours first."""
    return sorted(((name, cell) for (of, name), cell in self.cells.items()
                   if of == problem), key=lambda item: (solver_of(item[0]) != OURS,
                                                        item[0]))

  def seconds(self, problem, excess, from_arrays=False):
    """Seconds by the name of a cell, inf if it is not reached."""
    cost = (1 + excess) * self.best.get(problem, -math.inf)
    return {name: cell.seconds_to(cost) + (cell.around() if from_arrays else 0.0)
            for name, cell in self.of(problem)}


def ratio(record, problem, excess, from_arrays=False):
  """Our seconds over those of the best rival."""
  seconds = record.seconds(problem, excess, from_arrays)
  ours = seconds.get(record.us, math.inf)
  rivals = {name: s for name, s in seconds.items() if solver_of(name) != OURS}
  name = min(rivals, key=rivals.get, default=None)
  best = rivals.get(name, math.inf)
  if math.isinf(ours):
    return '–' if math.isinf(best) else f'never / {number(best)} s, {name}'
  if math.isinf(best):
    return f'{number(ours)} s / never'
  text = f'{number(ours / best)}, {name}'
  return f'**{text}**' if ours > 1.1 * best else text


def ratios(record):
  """A table for each kind."""
  text = ''
  for name, kind in KINDS.items():
    rows = []
    for problem in record.problems:
      facts = record.facts[problem]
      if facts['kind'] == name:
        rows.append([problem, f'{facts["cameras"]:,}', f'{facts["observations"]:,}',
                     *(ratio(record, problem, excess) for _, excess in TARGETS),
                     ratio(record, problem, TARGETS[1][1], from_arrays=True)])
    if rows:
      text += f'### {kind.title}\n\n' + table(
          ['problem', kind.units[0], kind.units[2],
           *('to ' + target for target, _ in TARGETS),
           f'from arrays to {TARGETS[1][0]}'], rows) + '\n'
  return text


def sizes_of(facts):
  units = zip(KINDS[facts['kind']].units, ('cameras', 'points', 'observations'))
  text = ', '.join(f'{facts[name]:,} {unit}' for unit, name in units if unit)
  return f'{facts["windows"]:,} windows, {text}' if 'windows' in facts else text


def details(record, problem):
  rows = []
  facts, best = record.facts[problem], record.best.get(problem)
  is_covariance = facts['kind'] == 'covariance'
  rates = ['windows/s to 0.1 %'] if 'windows' in facts else []
  for name, cell in record.of(problem):
    if not cell.counts:
      continue
    final = statistics.median(run['stamps'][-1][1] for run in cell.solved)
    seconds = [cell.seconds_to((1 + excess) * best) for _, excess in TARGETS]
    above = 100 * (final / best - 1)
    rows.append([f'`{name}`', *map(number, seconds),
                 *(number(facts['windows'] / seconds[1]) for _ in rates),
                 f'{above if is_covariance else round(above, 4):.2g}',
                 *(number(cell.compile_seconds() if column == 'compile' else
                          cell.column(column)) for column in COLUMNS),
                 number(cell.most('device_bytes') / 1e9),
                 number(cell.most('host_bytes') / 1e9), len(cell.runs),
                 cell.same_bits()])
  if not rows:
    return ''
  return table(['', *('to ' + name for name, _ in TARGETS), *rates,
                'error, %' if is_covariance else 'above the best, %', 'set-up',
                'start of CUDA', 'compile', 'transfer', 'GB of the GPU', 'GB of the host',
                'runs', 'same bits'], rows)


def without_number(record):
  """Cells that failed, are void or missing, with their sentence, and claims that
  were wrong."""
  problems = {}
  for (problem, name), cell in record.cells.items():
    for run in cell.runs:
      if run['why']:
        key = (name, run['ending'] if run['ending'] != 'solved' else 'audited costs only',
               run['why'])
        problems.setdefault(key, [])
        if problem not in problems[key]:
          problems[key].append(problem)
  rows = []
  for (name, ending, why), of in sorted(problems.items()):
    rows.append([f'`{name}`', ending, why, 'all' if len(of) == len(record.problems) and
                 len(of) > 1 else ', '.join(sorted(of))])
  return table(['', 'ending', 'why', 'problems'], rows)


def machines(record):
  text = ''
  for m in record.machines:
    versions = [version for of in m['versions'].values() for version in of]
    text += (f'{m["gpu"] or "No GPU"}, {m["cores"]} cores ({m["cpu"]}), {m["date"]}' +
             (f', commit `{m["commit"]}`' if m['commit'] else '') +
             f'; {m["threads"]} threads, up to {m["runs"]} runs of at most {m["iterations"]} '
             f'iterations and {m["limit"]:g} s; ' + ', '.join(versions) + '.\n\n')
  return text


def readme_part(title):
  """A section of the README beside this file."""
  text = (HERE / 'README.md').read_text(encoding='utf-8')
  return text.split(f'## {title}\n', 1)[1].split('\n## ', 1)[0].strip() + '\n'


def styles_of(record):
  """Colour and line by the name of a cell."""
  styles, lines = {}, ('-', '--', ':', '-.', (0, (5, 1, 1, 1, 1, 1)))
  for name in sorted({name for _, name in record.cells},
                     key=lambda name: (not name.endswith(':default'), name)):
    solver = solver_of(name)
    before = sum(solver_of(other) == solver for other in styles)
    styles[name] = {'color': COLORS.get(solver, '#555555'),
                    'linestyle': lines[before % len(lines)]}
  return styles


def plot_costs(record, path):
  import svg_plots
  plt = svg_plots.use_svg()
  shown = [p for p in record.problems if p in record.best]
  styles = styles_of(record)
  wide = 3
  tall = (len(shown) + wide - 1) // wide
  figure, axes = plt.subplots(tall, wide, figsize=(11, 2.6 * tall), squeeze=False,
                              layout='constrained')
  drawn = {}
  for axis, problem in zip(axes.flat, shown):
    for name, cell in record.of(problem):
      if cell.counts:
        stamps = sorted((s, max(cost / record.best[problem] - 1, 1e-6))
                        for s, cost, _ in cell.solved[0]['stamps'] if s > 0)
        if stamps:
          drawn[name], = axis.plot(*zip(*stamps), linewidth=1, **styles[name],
                                   marker='.' if len(stamps) == 1 else None)
    axis.set(xscale='log', yscale='log')
    axis.set_title(problem, fontsize=7)
    axis.tick_params(labelsize=6)
    axis.grid(True, linewidth=0.3)
  for axis in list(axes.flat)[len(shown):]:
    axis.set_visible(False)
  figure.supxlabel('seconds', fontsize=8)
  figure.supylabel('cost / best cost - 1', fontsize=8)
  figure.legend(drawn.values(), drawn.keys(), loc='outside upper center', ncols=4,
                fontsize=7)
  svg_plots.save(figure, path)
  plt.close(figure)


def profile(record, excess):
  """By cell: for each problem its seconds over the least of all, inf if never."""
  names = {name for _, name in record.cells}
  over = {name: [] for name in names}
  for problem in record.problems:
    seconds = record.seconds(problem, excess)
    least = min(seconds.values(), default=math.inf)
    if math.isinf(least):
      continue
    for name in names:
      over[name].append(seconds.get(name, math.inf) / least)
  return {name: sorted(values) for name, values in over.items()
          if any(map(math.isfinite, values))}


def plot_profiles(record, path):
  import svg_plots
  plt = svg_plots.use_svg()
  styles = styles_of(record)
  figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout='constrained')
  for axis, (title, excess) in zip(axes, TARGETS):
    for name, values in sorted(profile(record, excess).items()):
      x = [v for v in values if math.isfinite(v)]
      axis.step([1, *x, 1e4], [sum(v <= at for v in values) / len(values)
                               for at in (1, *x, 1e4)], where='post', linewidth=1,
                label=name, **styles[name])
    axis.set(xscale='log', xlim=(1, 1e4), ylim=(0, 1.02),
             xlabel='seconds over the least of all')
    axis.set_title(f'to {title}', fontsize=8)
    axis.grid(True, linewidth=0.3)
  axes[0].set_ylabel('part of the problems')
  handles = {label: handle for axis in axes
             for handle, label in zip(*axis.get_legend_handles_labels())}
  figure.legend(handles.values(), handles.keys(), loc='outside right upper', fontsize=7)
  svg_plots.save(figure, path)
  plt.close(figure)


def verdict(record):
  """The first sentences of the page."""
  text = []
  for title, excess in TARGETS[:2]:
    wins = losses = 0
    for problem in record.problems:
      seconds = record.seconds(problem, excess)
      ours = seconds.get(record.us, math.inf)
      rival = min((s for n, s in seconds.items() if solver_of(n) != OURS),
                  default=math.inf)
      wins += ours <= 1.1 * rival and math.isfinite(ours)
      losses += ours > 1.1 * rival
    text.append(f'To {title} above the best cost, `{record.us}` is within 10 % of the '
                f'best rival or faster on {wins} of {len(record.problems)} '
                f'problems and slower on {losses}.')
  return ' '.join(text)


def write_page(paths, page, us, with_plots):
  record = Record(paths, us)
  page = pathlib.Path(page)
  folder = page.parent / page.stem
  text = ('# Arena\n\n<!-- Made by benchmarks/arena/arena page. -->\n\n' +
          verdict(record) + '\n\n' + machines(record) +
          readme_part('Measurement') + '\n## Ratios\n\n'
          f'Seconds of `{us}` over those of the best rival with any setting. Above 1 this '
          'library is slower; bold by more than 10 %.\n\n' +
          ratios(record))
  if with_plots:
    folder.mkdir(parents=True, exist_ok=True)
    plot_costs(record, folder / 'cost.svg')
    plot_profiles(record, folder / 'profiles.svg')
    text += (f'\n![Performance profiles]({folder.name}/profiles.svg)\n\n'
             'A solver never solves the problems of a kind that it does not support.\n\n'
             f'![Cost against time]({folder.name}/cost.svg)\n')
  text += '\n## What each rival does better\n'
  for note in sorted((HERE / 'solvers').glob('*.md')):
    text += '\n' + note.read_text(encoding='utf-8').strip() + '\n'
  text += '\n## Cells without a number\n\n' + without_number(record)
  text += '\n## Every problem\n\nSeconds are medians.\n'
  for problem in record.problems:
    facts = record.facts[problem]
    best = record.best.get(problem)
    text += f'\n### {problem}\n\n{sizes_of(facts)}; '
    if facts['kind'] == 'covariance':
      text += 'the largest error is in standard deviations.\n\n'
    else:
      text += (f'cost {facts["initial_cost"]:.9g} at the start, ' +
               (f'{best:.9g} at best.\n\n' if best else 'no solution.\n\n'))
    text += details(record, problem)
  text += '\n## Add a solver\n\n' + readme_part('Add a solver')
  page.parent.mkdir(parents=True, exist_ok=True)
  page.write_text(text, encoding='utf-8')
  print(f'{os.path.relpath(page)}: {len(record.problems)} problems, '
        f'{len(record.cells)} cells')
  return 0
