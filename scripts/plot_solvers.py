#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Turns the records of scripts/gpu_solvers into the table and the plot of
docs/measurements/comparison/solvers.md.

  scripts/plot_solvers.py [FOLDER]... [--commit HASH]
      [--record docs/measurements/comparison/solvers.jsonl]
      [--page docs/measurements/comparison/solvers.md] [--no-plots]

FOLDER has files SIZE-SEED.json of compare_solvers.py --json; --commit says
which commit they are of. Their runs join those of the record, a line each, and
replace older ones of the same problem and solver. The best cost of a problem is
that of all its runs in the record. --page replaces the text between
"<!-- begin solvers -->" and "<!-- end solvers -->"; the plot, solvers.svg, is
written beside the record. The plot needs matplotlib; --no-plots omits it.
"""

import argparse
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "lib"))
import svg_plots  # noqa: E402: found by the line above

EXCESSES = (0.01, 0.001, 0.0001)
# Solver, name in the plot, colour and marker; those without a name are not in
# it.
SOLVERS = {
    "ceres:sparse_schur": None,
    "ceres:dense_schur": None,
    "ceres:iterative_schur": ("stock ITERATIVE_SCHUR", "#a65a00", "^"),
    "ceres:iterative_schur+jacobi": None,
    "ceres:cgnr": None,
    "ceres:dense_schur+cuda": ("stock DENSE_SCHUR, CUDA", "#d9a441", "s"),
    "ceres:cgnr+cuda": ("stock CGNR, CUDA", "#c0504d", "v"),
    "ceres_ext:host": ("this library, host", "#7fb2d6", "o"),
    "ceres_ext:cuda": None,
    "ceres_ext:cuda+recomputed": ("this library, CUDA", "#1b6ca8", "o"),
    "ceres_ext:cuda+mixed": None,
    "ceres_ext:cuda+dense_schur": ("this library, DENSE_SCHUR on CUDA",
                                   "#2a9d5c", "D"),
}


def compact(path, run, commit):
    """A run as the record has it: pairs of seconds and cost where it fell."""
    size, seed = path.stem.rsplit("-", 1)
    report = run["report"] or {}
    progress, lowest = [], float("inf")
    for iteration in report.get("iterations", []):
        if iteration["step_is_successful"] and iteration["cost"] < lowest:
            lowest = iteration["cost"]
            progress.append([
                float(f"{iteration['cumulative_time_in_seconds']:.4g}"),
                lowest])
    problem, summary = report.get("problem", {}), report.get("summary", {})
    return {
        "size": size, "seed": int(seed), "solver": run["solver"],
        "ending": run["ending"], "commit": commit,
        "num_observations": problem.get("num_observations"),
        "read_and_build": round(problem.get("read_time_in_seconds", 0)
                                + problem.get("build_time_in_seconds", 0), 4),
        "start_of_cuda": round(report.get("ceres_ext", {}).get(
            "context_time_in_seconds", 0), 4),
        "total": summary.get("total_time_in_seconds"),
        "iterations": len(report.get("iterations", [])) - 1,
        "out_of_time": summary.get("message", "").startswith(
            "Maximum solver time"),
        "progress": progress}


def key(run):
    return run["size"], run["seed"], run["solver"]


def seconds_to(run, cost):
    return next((seconds for seconds, reached in run["progress"]
                 if reached <= cost), None)


class Comparison:

    def __init__(self, runs):
        self.runs = {key(run): run for run in runs}
        problems = {}
        for run in runs:
            if run["num_observations"]:
                problems[run["size"]] = run["num_observations"]
        self.sizes = sorted(problems, key=problems.get)
        self.num_observations = problems
        self.seeds = sorted({run["seed"] for run in runs})
        self.best = {}
        for run in runs:
            if run["progress"]:
                problem = (run["size"], run["seed"])
                self.best[problem] = min(run["progress"][-1][1],
                                         self.best.get(problem, float("inf")))

    def of(self, size, solver):
        """(seed, run) of those that were run."""
        return [(seed, self.runs[size, seed, solver]) for seed in self.seeds
                if (size, seed, solver) in self.runs]

    def seconds(self, size, solver, excess):
        """A value for each seed, None if it was not reached."""
        return [seconds_to(run, (1 + excess) * self.best[size, seed])
                for seed, run in self.of(size, solver)]


def cell(values):
    return " · ".join("–" if value is None else f"{value:.3g}"
                      for value in values)


def table(comparison):
    text = ""
    for size in comparison.sizes:
        text += (f"\n**{size}**, {comparison.num_observations[size]:,} "
                 "observations\n\n"
                 "| | to 1 % | to 0.1 % | to 0.01 % | final cost above the "
                 "best, % | iterations | read and build |\n"
                 "|---|---|---|---|---|---|---|\n")
        for solver in SOLVERS:
            found = comparison.of(size, solver)
            if not found:
                continue
            above = [None if not run["progress"] else 100 * (
                run["progress"][-1][1] / comparison.best[size, seed] - 1)
                     for seed, run in found]
            text += "| " + " | ".join([
                f"`{solver}`",
                *(cell(comparison.seconds(size, solver, excess))
                  for excess in EXCESSES),
                " · ".join("–" if value is None else f"{value:.2g}"
                           if value >= 0.0005 else "0" for value in above),
                " · ".join(str(run["iterations"])
                           + ("*" if run["out_of_time"] else "")
                           for _, run in found),
                cell([run["read_and_build"] for _, run in found])]) + " |\n"
    return text


def plot(comparison, path):
    plt = svg_plots.use_svg()
    figure, axes = plt.subplots(figsize=(9, 4.6), layout="constrained")
    shown = [solver for solver in SOLVERS if SOLVERS[solver]]
    top = 1.0
    for index, solver in enumerate(shown):
        name, color, marker = SOLVERS[solver]
        offset = 0.09 * (index - (len(shown) - 1) / 2)
        medians, points, never = [], [], []
        for x, size in enumerate(comparison.sizes):
            values = comparison.seconds(size, solver, EXCESSES[0])
            found = sorted(value for value in values if value is not None)
            points += [(x + offset, value) for value in found]
            never += [x + offset] * (len(values) - len(found))
            if 2 * len(found) > len(values):
                medians.append((x + offset, sorted(
                    value if value is not None else float("inf")
                    for value in values)[(len(values) - 1) // 2]))
        if points:
            axes.plot(*zip(*points), marker, color=color, markersize=4,
                      alpha=0.6)
            top = max(top, *(value for _, value in points))
        if medians:
            axes.plot(*zip(*medians), color=color, linewidth=1)
        axes.plot([], [], color=color, marker=marker, markersize=4,
                  linewidth=1, label=name)
        for x in never:
            axes.plot([x], [1.0], "x", color=color, markersize=4,
                      transform=axes.get_xaxis_transform(), clip_on=False)
        if medians and solver in ("ceres:iterative_schur",
                                  "ceres_ext:cuda+recomputed"):
            for x, value in medians:
                axes.annotate(f"{value:.2g}", (x, value), fontsize=7,
                              xytext=(3, 5), textcoords="offset points",
                              color=color)
    axes.set_yscale("log")
    axes.set_ylim(top=3 * top)
    axes.set_xticks(range(len(comparison.sizes)), [
        f"{size}\n{comparison.num_observations[size]:,}"
        for size in comparison.sizes], fontsize=7)
    axes.set_ylabel("seconds to 1 % above the best cost")
    axes.grid(True, axis="y", linewidth=0.3)
    figure.legend(loc="outside upper center", ncols=3, fontsize=8)
    svg_plots.save(figure, path)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", type=pathlib.Path, nargs="*")
    parser.add_argument("--commit", default="")
    parser.add_argument(
        "--record", type=pathlib.Path,
        default=ROOT / "docs/measurements/comparison/solvers.jsonl")
    parser.add_argument("--page", type=pathlib.Path,
                        default=ROOT / "docs/measurements/comparison/solvers.md")
    parser.add_argument("--no-plots", action="store_true")
    arguments = parser.parse_args()

    runs = {}
    if arguments.record.exists():
        for line in arguments.record.read_text().splitlines():
            run = json.loads(line)
            runs[key(run)] = run
    for folder in arguments.folders:
        for path in sorted(folder.glob("*.json")):
            for run in json.loads(path.read_text())["runs"]:
                run = compact(path, run, arguments.commit)
                runs[key(run)] = run
    comparison = Comparison(list(runs.values()))
    order = {solver: index for index, solver in enumerate(SOLVERS)}
    lines = sorted(runs.values(), key=lambda run: (
        comparison.sizes.index(run["size"]), run["seed"],
        order[run["solver"]]))
    arguments.record.parent.mkdir(parents=True, exist_ok=True)
    arguments.record.write_text("".join(
        json.dumps(run, separators=(",", ":")) + "\n" for run in lines))
    page = arguments.page.read_text()
    begin, end = "<!-- begin solvers -->\n", "<!-- end solvers -->"
    if begin not in page or end not in page:
        raise SystemExit(f"{arguments.page} has no place for the table")
    text = table(comparison)
    arguments.page.write_text(re.sub(
        re.escape(begin) + ".*?" + re.escape(end),
        lambda _: begin + text + "\n" + end, page, flags=re.DOTALL))
    if not arguments.no_plots:
        plot(comparison, arguments.record.parent / "solvers.svg")


if __name__ == "__main__":
    main()
