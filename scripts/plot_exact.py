#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Turns the record of scripts/measure exact into the tables and plots of the exact
step, beside those of Choudhary, Gupta and Narayanan 2010, "Practical Time
Bundle Adjustment for 3D Reconstruction on the GPU".

  scripts/plot_exact.py EXACT.jsonl [--timeline TIMELINE.csv] [--commit HASH]
      [--output FOLDER] [--no-plots]

Writes tables.md and SVG files into FOLDER, default
docs/measurements/study_exact. Nothing is estimated: values missing
in the record are dashes. TIMELINE.csv, of the same script, has the times of the
work of device and host (benchmarks/cuda_timeline.cc), for the paper's Figure 3.
The plots need matplotlib; --no-plots omits them.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import svg_plots  # noqa: E402: found by the line above
from gpu_runs import table  # noqa: E402
import timeline_table  # noqa: E402

# Table 1 of the paper: seconds of a step in one iteration, a quarter of a Tesla
# S1070 and a Tesla C2050, both with a Core i7 of 2.66 GHz.
PAPER_CAMERAS = (38, 104, 210, 356, 488)
PAPER = (
    ("initial projection", (0.02, 0.02, 0.05, 0.06, 0.06),
     (0.01, 0.03, 0.04, 0.04, 0.05)),
    ("Jacobian", (0.1, 0.2, 0.32, 0.39, 0.45), (0.04, 0.07, 0.12, 0.16, 0.17)),
    ("U, V, W", (0.14, 0.23, 0.39, 0.5, 0.56), (0.04, 0.09, 0.15, 0.18, 0.2)),
    ("S", (0.25, 0.97, 2.5, 4.63, 6.55), (0.09, 0.27, 0.56, 1.01, 1.3)),
    ("S inverse", (0.01, 0.09, 0.28, 0.87, 1.74), (0, 0.02, 0.08, 0.19, 0.39)),
    ("error norm (CPU)", (0, 0.01, 0.01, 0.01, 0.02), None),
    ("gradients (CPU)", (0.05, 0.12, 0.17, 0.21, 0.24), None),
    ("right-hand side (CPU)", (0.03, 0.05, 0.08, 0.1, 0.11), None),
    ("total", (0.52, 1.51, 3.54, 6.44, 9.36), (0.19, 0.51, 0.97, 1.61, 2.15)),
)
# Ours of the same kind, and the field of the record: projections are of the
# error norm too, gradients and right-hand side of the normal blocks.
OURS = (
    ("projection, error norm", "residuals"),
    ("Jacobian", "jacobian"),
    ("U, V, gradients, right-hand side", "normal_blocks"),
    ("S", "schur"),
    ("factor and solution", "factorization"),
    ("points' steps", "back_substitution"),
    ("whole iteration", "iteration"),
)
METHODS = {
    "dense": "dense, recomputed J", "dense_stored": "dense, stored J",
    "dense_mixed": "dense, float factor refined", "sparse": "sparse",
    "dense_float": "dense, all float", "auto": "auto",
    "pcg_host": "PCG on the host",
    "pcg": "PCG", "pcg_explicit": "PCG, products by S",
    "ceres_eigen": "stock, Eigen", "ceres_lapack": "stock, LAPACK",
    "ceres_cuda": "stock, CUDA", "ceres_sparse": "stock, SPARSE_SCHUR",
}
# Methods in the plots; tables have all.
COLORS = {"dense": "#1b6ca8", "dense_stored": "#7fb2d6", "pcg": "#2a9d5c",
          "ceres_lapack": "#d95f02", "ceres_cuda": "#a6197a"}


# Steps of an iteration, and the kernels that belong to them, by the first that
# fits "name<arguments>"; cuSOLVER's, whose names begin small, are those of none.
STEPS = (
    ("S", r"(?=[A-Z]).*(Schur|Coupling|Crossing|PairInverse|LongBlocks)"
     r"|RecordPoints|RecordObservations"),
    ("evaluation, Jacobian", r"(?=[A-Z]).*Evaluat|PrepareCameras|RecordCameras"),
    ("U, V, gradients, right-hand side",
     r"PointBlocks|FinishCameraBlocks|CameraChunk"),
    ("points' steps, products", r"(?=[A-Z]).*(Multiply|Tile|Norms)"),
    ("vectors", r"[A-Z]"),
    ("factor and solution", r""),
)
LANES = (*(step for step, _ in STEPS), "copies", "host calls CUDA",
         "host waits")
# Calls in which the host waits for the device.
WAITS = re.compile(r"Synchronize|cudaMemcpy|cudaFree|cudaMalloc")
# A kernel that runs once with each factorisation, behind it.
LAST_KERNEL = "FindBadDiagonal"


def read_timeline(path):
    """The events between the ends of the last two factorisations:
    [(lane, start, end)] in seconds from the first of these."""
    events = timeline_table.read(path)
    ends = [end for _, name, _, _, end in events
            if name.startswith(LAST_KERNEL)]
    if len(ends) < 2:
        raise SystemExit(f"{path} holds {len(ends)} factorisations, two or "
                         "more are needed")
    begin, last = ends[-2:]
    found = []
    for kind, name, _, start, end in events:
        if end <= begin or start >= last:
            continue
        if kind == "call":
            lane = "host waits" if WAITS.search(name) else "host calls CUDA"
        elif kind == "kernel":
            lane = next(step for step, of in STEPS if re.match(of, name))
        else:
            lane = "copies"
        found.append((lane, max(start, begin) - begin, min(end, last) - begin))
    return found, last - begin


def union(intervals):
    """Seconds that any of them covers."""
    return timeline_table.busy([(None, None, None, start, end)
                                for start, end in sorted(intervals)])


def table_timeline(events, seconds):
    lines = []
    for lane in LANES:
        of = [(start, end) for name, start, end in events if name == lane]
        if of:
            lines.append([lane, str(len(of)), number(union(of), 1e3),
                          number(min(of)[0], 1e3),
                          number(max(end for _, end in of), 1e3)])
    busy = union([(start, end) for lane, start, end in events
                  if not lane.startswith("host")])
    lines.append(["the device, all", "", number(busy, 1e3), "0",
                  number(seconds, 1e3)])
    return table(["", "how many", "ms", "first at, ms", "last until, ms"],
                 lines) + (
        f"\nThe device is busy for {100.0 * busy / seconds:.1f} % of the "
        "iteration, traced.\n")


def plot_timeline(events, seconds, path, plt):
    """Figure 3 of the paper: when each step ran, on device and host."""
    names = [name for name in LANES if any(name == lane
                                           for lane, _, _ in events)]
    figure, axes = plt.subplots(figsize=(10, 0.45 * len(names) + 1.1),
                                layout="constrained")
    for y, name in enumerate(names):
        of = sorted((start, end) for lane, start, end in events
                    if lane == name)
        # Neighbours less than a thousandth apart are drawn as one.
        merged = []
        for start, end in of:
            if merged and start - merged[-1][1] < 1e-3 * seconds:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        axes.broken_barh([(1e3 * start, 1e3 * (end - start))
                          for start, end in merged], (y - 0.4, 0.8),
                         color="#7fb2d6" if name.startswith("host")
                         else "#1b6ca8")
        axes.annotate(f"{1e3 * union(of):.3g} ms", (1e3 * seconds, y),
                      fontsize=7, va="center", xytext=(4, 0),
                      textcoords="offset points")
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1e3 * seconds)
    axes.set_xlabel("ms of one iteration, from factor to factor")
    svg_plots.save(figure, path)
    plt.close(figure)


def read(path):
    """The machine, the solves of exact_benchmark, its derivatives, and the steps
    of split_benchmark."""
    machine, rows, derivatives, splits = {}, [], [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise SystemExit(f"{path}:{number}: expected a line of JSON: "
                             f"{error}") from error
        if row.get("format") == "ceres_ext_exact":
            machine = row
        elif "derivatives" in row:
            derivatives.append(row)
        elif "split" in row:
            splits.append(row)
        else:
            rows.append(row)
    if not machine:
        raise SystemExit(f"{path} is not a record of measure exact")
    return machine, rows, derivatives, splits


def problem(row):
    name = row["like"] or f"{row['cameras']} cameras"
    return name + (f", reach {row['reach']}" if row.get("reach") else "")


def label(row):
    name = METHODS[row["method"]]
    stock = row["method"].startswith("ceres")
    if not stock:
        return name
    return name + (", one core" if row["threads"] == 1
                   else f", {row['threads']} threads")


def is_solved(row):
    return row["linear_solves"] > 0


def number(value, scale=1.0):
    if value is None:
        return "–"
    value *= scale
    return f"{value:.0f}" if value >= 100.0 else f"{value:.3g}"


def milliseconds(row, field):
    """A stage that has not run has no time."""
    return number(row[field] or None, 1e3)


def of_paper(rows):
    """cameras -> rows of the sizes of the paper."""
    found = {cameras: [row for row in rows if row["cameras"] == cameras
                       and not row["like"] and is_solved(row)
                       and row["max_iterations"] < 20]
             for cameras in PAPER_CAMERAS}
    return {cameras: of for cameras, of in found.items() if of}


def table_1(rows):
    """The paper's Table 1, and ours below it."""
    text = "Choudhary, Gupta, Narayanan 2010, ms: Tesla S1070 / Tesla C2050\n\n"
    text += table(
        ["step", *(f"{cameras} cameras" for cameras in PAPER_CAMERAS)],
        [[name, *(number(first[i], 1e3)
                  + (f" / {number(second[i], 1e3)}" if second else "")
                  for i in range(len(PAPER_CAMERAS)))]
         for name, first, second in PAPER])
    for cameras, found in of_paper(rows).items():
        text += f"\n{cameras} cameras, ms\n\n"
        text += table(["step", *map(label, found)],
                      [[name, *(milliseconds(row, field) for row in found)]
                       for name, field in OURS])
    return text


def table_all(rows):
    """Every line of the record."""
    return table(
        ["problem", "start", "iterations", "seed", "method",
         "iteration, ms (least–most)", "S",
         "factor", "PCG", "normal blocks", "set-up, s", "to 1 %, s",
         "to 0.1 %, s", "above the best cost", "device MB, forecast", ""],
        [[problem(row), f"{row['start']:g}", str(row["max_iterations"]),
          str(row["seed"]), label(row),
          f"{number(row['iteration'], 1e3)} "
          f"({number(row['iteration_least'], 1e3)}–"
          f"{number(row['iteration_most'], 1e3)})" if is_solved(row) else "–",
          milliseconds(row, "schur"), milliseconds(row, "factorization"),
          milliseconds(row, "pcg"), milliseconds(row, "normal_blocks"),
          number(row["setup"] or row["preprocessor"]),
          number(row["to_1_percent"]), number(row["to_0.1_percent"]),
          f"{row['final_cost'] / row['best_cost'] - 1.0:.1e}"
          if is_solved(row) else "–",
          f"{1e-6 * row['bytes']:.4g}, {1e-6 * row['forecast_bytes']:.4g}"
          if row["bytes"] else "–",
          row["how"] if is_solved(row) else row["reason"]]
         for row in rows])


def table_derivatives(rows):
    """Relative errors of blocks."""
    return table(
        ["problem", "seed", "observations", "camera: median", "most",
         "point: median", "most"],
        [[problem(row), str(row["seed"]), str(row["observations"]),
          *(f"{row[field]:.1e}" for field in (
              "camera_median", "camera_most", "point_median", "point_most"))]
         for row in rows])


def table_split(rows):
    """The device alone, and with the paper's part for the host."""
    return table(
        ["cameras", "the device alone, ms", "split, ms",
         "of it the host's part", "split over alone"],
        [[str(row["cameras"]), number(row["alone"]),
          number(row["split_step"]), number(row["host"]),
          number(row["split_step"] / row["alone"])] for row in rows])


def table_to_cost(rows):
    """Which of the exact step and PCG is first near the best cost."""
    lines = []
    rows = [row for row in rows if row["max_iterations"] >= 20]
    for name in dict.fromkeys((problem(row), row["start"], row["seed"])
                              for row in rows):
        of = {row["method"]: row for row in rows if is_solved(row) and
              (problem(row), row["start"], row["seed"]) == name}
        exact = [row for method, row in of.items()
                 if method.startswith(("dense", "sparse"))]
        if "pcg" not in of or not exact:
            continue
        # Never is later than any time.
        best = min(exact, key=lambda row: row["to_0.1_percent"]
                   or float("inf"))
        seconds = best["to_0.1_percent"]
        pcg = of["pcg"]["to_0.1_percent"]
        lines.append([name[0], str(name[1]), str(name[2]), label(best),
                      number(seconds, 1e3), number(pcg, 1e3),
                      number(seconds / pcg) if seconds and pcg else "–"])
    return table(["problem", "start", "seed", "exact step", "to 0.1 %, ms",
                  "PCG to 0.1 %, ms", "exact over PCG"], lines)


def plot(rows, timeline, folder):
    plt = svg_plots.use_svg()

    sizes = of_paper(rows)
    series = {}
    for cameras, found in sizes.items():
        for row in found:
            if row["method"] not in COLORS:
                continue
            series.setdefault((row["method"], label(row)), []).append(
                (cameras, row))

    def save(figure, name):
        svg_plots.save(figure, folder / name)
        plt.close(figure)

    def draw(axes, points, method, name):
        axes.plot(*zip(*points), marker="o", markersize=4, label=name,
                  color=COLORS.get(method, "#777777"),
                  linestyle="--" if "one core" in name else "-")
        for x, y in points:
            axes.annotate(f"{y:.4g}" if y >= 1000 else f"{y:.3g}", (x, y),
                          fontsize=6, xytext=(0, 4),
                          textcoords="offset points", ha="center")

    if timeline:
        plot_timeline(*timeline, folder / "figure_3.svg", plt)

    # Figure 4: time of an iteration, and how many times faster than the host.
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(13, 4.2), layout="constrained")
    draw(left, list(zip(PAPER_CAMERAS, PAPER[-1][2])), None,
         "the paper, Tesla C2050 (2010)")
    host = {cameras: row["iteration"] for (method, _), points in series.items()
            if method == "ceres_cuda" for cameras, row in points}
    for (method, name), points in series.items():
        values = [(cameras, 1e3 * row["iteration"]) for cameras, row in points]
        if method.startswith("ceres"):
            draw(left, [(x, 1e-3 * y) for x, y in values], method, name)
        else:
            draw(middle, values, method, name)
            faster = [(x, 1e3 * host[x] / y) for x, y in values if x in host]
            if faster:
                draw(right, faster, method, name)
    for axes, unit in ((left, "seconds an iteration"),
                       (middle, "ms an iteration"),
                       (right, "times stock Ceres, CUDA")):
        axes.set_xlabel("cameras")
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        axes.grid(True, linewidth=0.3)
        if axes.has_data():
            axes.legend(fontsize=7)
    save(figure, "figure_4.svg")

    # Figure 5: memory of the device, forecast and used.
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for (method, name), points in series.items():
        if method.startswith("ceres"):
            continue
        draw(axes, [(x, 1e-6 * row["bytes"]) for x, row in points], method,
             name)
        axes.plot([x for x, _ in points],
                  [1e-6 * row["forecast_bytes"] for _, row in points],
                  linestyle=":", color=COLORS.get(method),
                  label=f"{name}, forecast")
    axes.set_xlabel("cameras")
    axes.set_ylabel("MB of the device")
    axes.set_ylim(bottom=0)
    axes.grid(True, linewidth=0.3)
    axes.legend(fontsize=7)
    save(figure, "figure_5.svg")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--timeline", type=pathlib.Path)
    parser.add_argument("--commit")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path(
        "docs/measurements/study_exact"))
    parser.add_argument("--no-plots", action="store_true")
    arguments = parser.parse_args()
    machine, rows, derivatives, splits = read(arguments.record)
    timeline = arguments.timeline and read_timeline(arguments.timeline)
    arguments.output.mkdir(parents=True, exist_ok=True)
    where = (f"{machine['date']}, {machine['gpu']}, driver "
             f"{machine['driver']}, {machine['cores']} cores of "
             f"{machine['cpu']}, sources {machine['source_hash']}")
    if arguments.commit:
        where += f", commit {arguments.commit}"
    (arguments.output / "tables.md").write_text("\n".join([
        "# Tables of the exact step\n",
        f"By `scripts/measure exact` and `scripts/plot_exact.py`: {where}. Medians "
        "over solves, the first of which is left out where there are more; "
        "seconds to a cost are of the last one. A dash was not measured.\n",
        "## Table 1 of the paper\n", table_1(rows),
        *(["## Figure 3 of the paper, 488 cameras\n",
           table_timeline(*timeline)] if timeline else []),
        "## The paper's split\n", table_split(splits),
        "## Forward differences against analytic derivatives\n",
        table_derivatives(derivatives),
        "## Exact step and PCG\n", table_to_cost(rows),
        "## All\n", table_all(rows)]))
    if not arguments.no_plots:
        plot(rows, timeline, arguments.output)
    print(arguments.output)


if __name__ == "__main__":
    main()
