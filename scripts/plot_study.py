#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Turns the record of bal_study into the tables and plots of
docs/measurements/study.md.

  scripts/plot_study.py RESULTS/study.json [--ncu RESULTS/ncu.csv]
      [--add RESULTS/host.json]...
      [--output docs/measurements/study]
      [--tables docs/measurements/study/tables.md]

Writes SVG files into the output folder and the tables, in Markdown, into one
file or to the standard output. --ncu adds the profiler's metrics to the record
itself, as "profile"; --add adds the runs of another record, such as the host's
(bal_study --nogpu) or those of other --parts, measured on the same processor
and GPU; what they measured is no longer "not measured". Nothing is estimated:
what the record does not hold is a dash. Needs matplotlib for the plots;
--no-plots does without.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import sys

CONFIGURATIONS = [
    (False, False, "no Schur, implicit W"),
    (False, True, "no Schur, explicit W"),
    (True, False, "Schur, implicit W"),
    (True, True, "Schur, explicit W"),
]

# Metric of ncu -> name in the record.
METRICS = {
    "gpu__time_duration.sum": "seconds",
    "dram__bytes_read.sum": "dram_bytes_read",
    "dram__bytes_write.sum": "dram_bytes_written",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum": "load_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "load_sectors",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum": "store_requests",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum": "store_sectors",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum": "atomic_sectors",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct":
        "load_efficiency_percent",
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct":
        "store_efficiency_percent",
}
SCALES = {
    "nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3,
    "ms": 1e-3, "second": 1.0, "s": 1.0,
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
    "sector": 1.0, "Ksector": 1e3, "Msector": 1e6,
    "request": 1.0, "%": 1.0, "": 1.0,
}


def read_ncu(path):
    """One row per kernel launch: kernel, layout and the metrics above; and the
    size that was profiled, which gpu_study.sh notes in a line of its own."""
    with open(path, newline="") as file:
        text = file.readlines()
    size = None
    for line in text:
        if line.startswith("# size "):
            size = line.split()[2]
    lines = [line for line in text if line.startswith('"')]
    reader = csv.reader(lines)
    header = next(reader)
    units = next(reader)
    rows = []
    for values in reader:
        if len(values) != len(header):
            continue
        cells = dict(zip(header, values))
        row = {"kernel": short_name(cells["Kernel Name"]),
               "layout": layout_of(cells["Kernel Name"])}
        for metric, name in METRICS.items():
            text = cells.get(metric, "").replace(",", "")
            if not text:
                continue
            unit = units[header.index(metric)]
            if unit not in SCALES:
                raise SystemExit(f"{path}: unknown unit '{unit}' of {metric}")
            try:
                row[name] = float(text) * SCALES[unit]
            except ValueError:
                pass  # "n/a"
        if not row["layout"]:
            print(f"{path}: no layout in {cells['Kernel Name']}",
                  file=sys.stderr)
        rows.append(row)
    return rows, size


def short_name(kernel):
    """The function's own name, with what tells its instances apart."""
    match = re.search(r"(\w+Kernel)", kernel)
    name = match.group(1) if match else kernel[:40]
    for term in ("JacobianBlocks", "CouplingBlocks", "NormalTerm",
                 "CameraNormTerm"):
        if term in kernel:
            name += " " + term
    return name


# Where a kernel's template arguments hold its BlockLayout, after casts such as
# "(int)" and "(ceres_ext::kernels::BlockLayout)" are gone.
LAYOUT_ARGUMENTS = (
    r"\b(?:StoredJacobian|CouplingBlocks)"
    r"<(?:double|float), *\d+, *(\d)\b",
    r"\bEvaluateJacobianKernel<(?:double|float), *\d+, *(\d)\b",
    r"\bNaive\w+Kernel<(?:\d+, *)?(\d) *>",
)


def layout_of(kernel):
    """BlockLayout as the template arguments say it: 0 is continuous-element, 1
    block-contiguous. Empty where they don't."""
    plain = re.sub(r"\((?:int|(?:\w+::)*BlockLayout)\)", "", kernel)
    for pattern in LAYOUT_ARGUMENTS:
        match = re.search(pattern, plain)
        if match:
            return "continuous" if match.group(1) == "0" else "block"
    return ""


def average_launches(rows):
    """The mean over the launches of a kernel in one layout."""
    groups = collections.OrderedDict()
    for row in rows:
        groups.setdefault((row["kernel"], row["layout"]), []).append(row)
    result = []
    for (kernel, layout), group in groups.items():
        entry = {"kernel": kernel, "layout": layout, "launches": len(group)}
        for name in METRICS.values():
            values = [row[name] for row in group if name in row]
            if values:
                entry[name] = sum(values) / len(values)
        result.append(entry)
    return result


def add_record(record, other, path):
    """The runs of `other` that `record` lacks."""
    if other["machine"]["cpu"] != record["machine"]["cpu"]:
        raise SystemExit(f"{path} was measured on another processor")
    if other["machine"].get("gpu") not in (None, record["machine"].get("gpu")):
        raise SystemExit(f"{path} was measured on another GPU")
    counts = ("name", "num_cameras", "num_points", "num_observations")
    what = ("variant", "jacobian", "use_schur", "explicit_w",
            "max_lm_iterations", "max_pcg_iterations")
    for size in other["sizes"]:
        for mine in record["sizes"]:
            if all(mine[name] == size[name] for name in counts):
                have = {tuple(run[name] for name in what)
                        for run in mine["runs"]}
                mine["runs"] += [run for run in size["runs"]
                                 if tuple(run[name] for name in what)
                                 not in have]
    done = measured(record)
    have = {skip["what"] for skip in record["skipped"]}
    record["skipped"] += [skip for skip in other["skipped"]
                          if skip["what"] != "GPU"
                          and skip["what"] not in have]
    record["skipped"] = [skip for skip in record["skipped"]
                         if skip["what"] not in done]
    record.setdefault("added", []).append(
        {"date": other["date"], "settings": other["settings"]})


def measured(record):
    """What bal_study calls the runs of a record where it can't do them."""
    names = set()
    for size in record["sizes"]:
        for run in size["runs"]:
            parts = [run["variant"], run["jacobian"], size["name"],
                     configuration_name(run)]
            if run["variant"].startswith("host"):
                del parts[1]
            name = ", ".join(parts)
            is_one = (run["max_lm_iterations"], run["max_pcg_iterations"]) == (
                1, 1)
            names.add(name if is_one else name + ", all iterations")
            if is_one:
                names.add(name + ", 1 x 1")
    return names


def milliseconds(seconds):
    return "–" if seconds is None else f"{1e3 * seconds:.3f}"


def number(value, pattern="{:.1f}"):
    return "–" if value is None else pattern.format(value)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |",
             "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |"
              for row in rows]
    return "\n".join(lines) + "\n"


def find_runs(size, variant, use_schur, explicit_w, lm, pcg,
              jacobian="stored double"):
    for run in size["runs"]:
        if (run["variant"], run["jacobian"], run["use_schur"],
                run["explicit_w"], run["max_lm_iterations"],
                run["max_pcg_iterations"]) == (variant, jacobian, use_schur,
                                               explicit_w, lm, pcg):
            return run
    return None


def configuration_name(row):
    for use_schur, explicit_w, name in CONFIGURATIONS:
        if (row["use_schur"], row["explicit_w"]) == (use_schur, explicit_w):
            return name
    raise SystemExit("a row without configuration")


def host_variant(record):
    threads = record["settings"]["host_threads"]
    return "host" if threads == 1 else f"host, {threads} threads"


def our_iteration(size, jacobian, other):
    """Seconds of our PCG iteration in the configuration of `other`."""
    explicit_w = other["explicit_w"] and not jacobian.startswith("recomputed")
    for row in size["iterations"]:
        if (row["variant"], row["jacobian"], row["use_schur"],
                row["explicit_w"]) == ("cuda", jacobian, other["use_schur"],
                                       explicit_w):
            return row["pcg_iteration_seconds"]
    return None


def ratio(theirs, ours):
    return number(theirs / ours if theirs and ours else None, "{:.2f}")


def write_ratios(record, out):
    """One PCG iteration of the others in times ours, all sizes."""
    variants = ["naive", "naive continuous", "cusparse CSR", "cusparse CSR J'",
                "cusparse BSR", "cuda block-contiguous"]
    out.write("\n## One PCG iteration in times ours, "
              "stored double / recomputed double\n\n")
    rows = []
    for size in record["sizes"]:
        for use_schur, explicit_w, name in CONFIGURATIONS:
            cells = []
            for variant in variants:
                found = [row for row in size["iterations"]
                         if (row["variant"], row["use_schur"],
                             row["explicit_w"]) == (variant, use_schur,
                                                    explicit_w)]
                cells.append("–" if not found else " / ".join(
                    ratio(found[0]["pcg_iteration_seconds"],
                          our_iteration(size, jacobian, found[0]))
                    for jacobian in ("stored double", "recomputed double")))
            if any(cell != "–" for cell in cells):
                rows.append([size["name"], name, *cells])
    out.write(table(["size", "configuration", *variants], rows))


def write_layouts(size, out):
    """Kernels that were timed in both layouts, next to each other."""
    block = {row["name"]: row for row in size["kernels"]
             if row["jacobian"] == "stored double, block-contiguous"}
    rows = [[row["name"], milliseconds(row["seconds"]),
             milliseconds(block[row["name"]]["seconds"]),
             ratio(block[row["name"]]["seconds"], row["seconds"])]
            for row in size["kernels"]
            if row["jacobian"] == "stored double" and row["name"] in block]
    if rows:
        out.write(f"\n## Layouts, stored double, {size['name']} size\n\n")
        out.write(table(["kernel", "continuous-element, ms",
                         "block-contiguous, ms", "ratio"], rows))


def write_tables(record, out):
    machine = record["machine"]
    settings = record["settings"]
    out.write("Measured " + record["date"] + " on "
              + machine.get("gpu", "no GPU") + " and " + machine["cpu"]
              + f" ({machine['hardware_threads']} hardware threads).\n")
    if machine.get("copy_bytes_per_second"):
        out.write("Copy within the device: "
                  f"{1e-9 * machine['copy_bytes_per_second']:.0f} GB/s.\n")

    for done in [record, *record.get("added", [])]:
        if done["settings"].get("host_jobs", 1) > 1:
            out.write("Full runs of the host implementation: "
                      f"{done['settings']['host_jobs']} at once.\n")

    out.write("\n## Table 3: operations of the W product, per observation\n\n")
    out.write(table(
        ["product", "multiplications", "additions", "values read"],
        [[row["product"], row["counted"]["multiplications"],
          row["counted"]["additions"], row["counted"]["loads"]]
         for row in record["operations"]]))

    largest = record["sizes"][-1] if record["sizes"] else None
    if largest and largest["iterations"]:
        out.write("\n## Table 4: normal equation and one PCG iteration, "
                  f"{largest['name']} size\n\n")
        rows = []
        for row in largest["iterations"]:
            iteration = row["pcg_iteration_seconds"]
            rows.append([
                row["variant"], row["jacobian"], configuration_name(row),
                milliseconds(row["linearize_seconds"]),
                milliseconds(row["normal_blocks_seconds"]),
                milliseconds(iteration),
                ratio(iteration, our_iteration(largest, "stored double", row)),
                ratio(iteration,
                      our_iteration(largest, "recomputed double", row)),
                number(row.get("step_difference"), "{:.1e}")])
        out.write(table(
            ["variant", "Jacobian", "configuration",
             "J and column norms, ms", "U, V, W, rhs, factors, ms",
             "PCG iteration, ms", "times ours, stored double",
             "times ours, recomputed double", "step difference"], rows))
        out.write(
            "\nTimes ours: of the same configuration; recomputed Jacobians have"
            " no explicit W,\nso there it is the one with implicit W.\n")
        write_ratios(record, out)

    if "profile" in record:
        out.write("\n## Table 5: profiler, "
                  f"{record['profile'].get('size', '')} size\n\n")
        rows = []
        kernels = record["profile"]["kernels"]
        order = list(dict.fromkeys(row["kernel"] for row in kernels))
        for row in sorted(kernels, key=lambda row: (
                order.index(row["kernel"]), row["layout"] != "continuous")):
            def per_request(op):
                requests = row.get(f"{op}_requests")
                return (row[f"{op}_sectors"] / requests
                        if requests and f"{op}_sectors" in row else None)
            rows.append([
                row["kernel"], row["layout"], row["launches"],
                number(row.get("load_efficiency_percent")),
                number(row.get("store_efficiency_percent")),
                number(per_request("load")), number(per_request("store")),
                number(1e-6 * (row.get("dram_bytes_read", 0)
                               + row.get("dram_bytes_written", 0))),
                milliseconds(row.get("seconds"))])
        out.write(table(
            ["kernel", "layout", "launches", "load efficiency, %",
             "store efficiency, %", "sectors per load", "sectors per store",
             "DRAM, MB", "ms"], rows))

    lm, pcg = settings["num_lm_iterations"], settings["num_pcg_iterations"]
    host = host_variant(record)
    for title, l, p in [(f"Figures 15 to 18: {lm} LM x {pcg} PCG", lm, pcg),
                        ("Figures 19 and 20: 1 LM x 1 PCG", 1, 1)]:
        out.write(f"\n## {title}, seconds\n\n")
        rows = []
        for size in record["sizes"]:
            for use_schur, explicit_w, name in CONFIGURATIONS:
                def seconds(variant, jacobian="stored double"):
                    run = find_runs(size, variant, use_schur, explicit_w, l, p,
                                    jacobian)
                    return run["total_seconds"] if run else None
                ours, theirs = seconds("cuda"), seconds(host)
                naive = seconds("naive")
                rows.append([
                    size["name"], size["num_observations"], name,
                    number(theirs, "{:.4f}"), number(naive, "{:.4f}"),
                    number(ours, "{:.4f}"),
                    number(seconds("cuda", "recomputed double"), "{:.4f}"),
                    number(seconds("cuda", "recomputed float"), "{:.4f}"),
                    number(theirs / ours if ours and theirs else None),
                    number(naive / ours if ours and naive else None)])
        out.write(table(
            ["size", "projections", "configuration", host, "naive", "ours",
             "ours, recomputed", "ours, recomputed float", f"{host} / ours",
             "naive / ours"], rows))

    if largest and largest["kernels"]:
        out.write(f"\n## Kernels, {largest['name']} size\n\n")
        out.write(table(
            ["kernel", "Jacobian", "GB", "ms", "% of copy"],
            [[row["name"], row["jacobian"], f"{1e-9 * row['bytes']:.3f}",
              milliseconds(row["seconds"]), number(row["percent_of_copy"])]
             for row in largest["kernels"]]))
        write_layouts(largest, out)

    rows = [[size["name"], size["num_observations"],
             milliseconds(size["index"]["seconds"]),
             milliseconds(size["index"]["one_build_seconds"]),
             milliseconds(size["index"].get("stored_tile_seconds")),
             milliseconds(size["index"].get("recomputed_tile_seconds"))]
            for size in record["sizes"] if "index" in size]
    if rows:
        out.write("\n## Index structures\n\n")
        out.write(table(
            ["size", "projections", "two builds and point order, ms",
             "one build, ms", "tiles and scratch, stored, ms",
             "tiles and scratch, recomputed, ms"], rows))

    if record["skipped"]:
        out.write("\n## Not measured\n\n")
        out.write(table(["what", "why"], [[row["what"], row["why"]]
                                          for row in record["skipped"]]))


def fit_line(xs, ys):
    """Least squares y = a x + b."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    return slope, mean_y - slope * mean_x


def plot(record, folder):
    import matplotlib
    matplotlib.use("svg")
    # The same record gives the same bytes.
    matplotlib.rcParams["svg.hashsalt"] = "study"
    import matplotlib.pyplot as plt

    def save(figure, name):
        figure.tight_layout()
        figure.savefig(folder / name, metadata={"Date": None})
        plt.close(figure)
        print(folder / name)

    lm = record["settings"]["num_lm_iterations"]
    pcg = record["settings"]["num_pcg_iterations"]
    host = host_variant(record)
    series = [(host, "stored double", "sequential host" if host == "host"
               else host, "#888888", "s"),
              ("naive", "stored double", "naive CUDA", "#d95f02", "^"),
              ("cuda", "stored double", "ours, stored", "#1b6ca8", "o"),
              ("cuda", "recomputed double", "ours, recomputed", "#2a9d4a", "D"),
              ("cuda", "recomputed float", "ours, recomputed float", "#7b3fa0",
               "v")]

    def points(variant, jacobian, use_schur, explicit_w, l, p):
        found = [(size["num_observations"],
                  find_runs(size, variant, use_schur, explicit_w, l, p,
                            jacobian)) for size in record["sizes"]]
        return [(x, run["total_seconds"]) for x, run in found if run]

    def draw(axes, use_schur, explicit_w, l, p, with_lines):
        drawn = False
        for variant, jacobian, label, color, marker in series:
            data = points(variant, jacobian, use_schur, explicit_w, l, p)
            if not data:
                continue
            drawn = True
            xs, ys = zip(*data)
            if with_lines and len(data) > 2:
                slope, offset = fit_line(xs, ys)
                axes.plot(xs, ys, marker=marker, color=color, linestyle="",
                          label=f"{label}: {1e9 * slope:.3g} ns each "
                                f"{'-' if offset < 0 else '+'} "
                                f"{1e3 * abs(offset):.3g} ms")
                # On logarithmic axes a line with an offset is a curve.
                grid = [min(xs) * (max(xs) / min(xs)) ** (i / 60)
                        for i in range(61)]
                line = [(x, slope * x + offset) for x in grid
                        if slope * x + offset > 0]
                axes.plot(*zip(*line), color=color, linewidth=0.8)
            else:
                axes.plot(xs, ys, marker=marker, color=color, label=label)
        if drawn:
            axes.set_xscale("log")
            axes.set_yscale("log")
            # Room for the legend above the points.
            bottom, top = axes.get_ylim()
            axes.set_ylim(bottom, top * (top / bottom) ** 0.4)
            axes.legend(fontsize=7, loc="upper left")
        axes.grid(True, which="major", linewidth=0.3)
        axes.set_xlabel("projections")
        axes.set_ylabel("seconds")
        return drawn

    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5))
    drawn = []
    for ax, configuration in zip(axes.flat, CONFIGURATIONS):
        drawn.append(draw(ax, *configuration[:2], lm, pcg, False))
        ax.set_title(f"{configuration[2]}, {lm} LM x {pcg} PCG", fontsize=9)
    if any(drawn):
        save(figure, "figures_15_18.svg")

    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5))
    drawn = []
    for ax, configuration in zip(axes.flat, CONFIGURATIONS):
        drawn.append(draw(ax, *configuration[:2], 1, 1, True))
        ax.set_title(f"{configuration[2]}, 1 LM x 1 PCG", fontsize=9)
    if any(drawn):
        save(figure, "figures_19_20.svg")

    largest = record["sizes"][-1] if record["sizes"] else None
    if largest and largest["iterations"]:
        rows = largest["iterations"]
        labels = [f"{row['variant']}, {row['jacobian']}\n"
                  f"{configuration_name(row)}" for row in rows]
        figure, ax = plt.subplots(figsize=(8, 0.36 * len(rows) + 1))
        ax.barh(range(len(rows)),
                [1e3 * row["pcg_iteration_seconds"] for row in rows],
                color=["#1b6ca8" if row["variant"].startswith("cuda")
                       else "#d95f02" if "naive" in row["variant"]
                       else "#888888" for row in rows])
        ax.set_yticks(range(len(rows)), labels, fontsize=6)
        ax.invert_yaxis()
        ax.set_xscale("log")
        ax.set_xlabel(f"one PCG iteration, ms, {largest['name']} size")
        ax.grid(True, axis="x", which="major", linewidth=0.3)
        save(figure, "table_4.svg")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--ncu", type=pathlib.Path)
    parser.add_argument("--add", type=pathlib.Path, action="append",
                        default=[])
    parser.add_argument("--ncu-size",
                        help="where the file of --ncu doesn't say it")
    parser.add_argument("--output", type=pathlib.Path,
                        default=pathlib.Path("docs/measurements/study"))
    parser.add_argument("--tables", type=pathlib.Path)
    parser.add_argument("--no-plots", action="store_true")
    arguments = parser.parse_args()

    record = json.loads(arguments.record.read_text())
    if record.get("format") != "ceres_ext_study":
        raise SystemExit(f"{arguments.record} is no record of bal_study")
    if arguments.ncu:
        launches, size = read_ncu(arguments.ncu)
        if not (arguments.ncu_size or size):
            raise SystemExit(f"{arguments.ncu} doesn't say its size; "
                             "give --ncu-size")
        record["profile"] = {"size": arguments.ncu_size or size,
                             "kernels": average_launches(launches)}
    for path in arguments.add:
        add_record(record, json.loads(path.read_text()), path)
    if arguments.ncu or arguments.add:
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")
    if arguments.tables:
        arguments.tables.parent.mkdir(parents=True, exist_ok=True)
        with open(arguments.tables, "w") as out:
            write_tables(record, out)
        print(arguments.tables)
    else:
        write_tables(record, sys.stdout)
    if not arguments.no_plots:
        arguments.output.mkdir(parents=True, exist_ok=True)
        plot(record, arguments.output)


if __name__ == "__main__":
    main()
