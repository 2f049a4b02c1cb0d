#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Turns the record of bal_study into the tables and plots of
docs/measurements/study.md and study_runs.md.

  scripts/plot_study.py RESULTS/study.json [--ncu RESULTS/ncu_SIZE.csv]...
      [--add RESULTS/host.json[@HASH]]... [--commit HASH]
      [--merged FILE] [--output docs/measurements/study]
      [--tables docs/measurements/study/tables.md]
      [--page docs/measurements/study.md]
      [--page docs/measurements/study_runs.md]

Writes SVG files into the output folder and the tables, in Markdown, into one
file or to the standard output. --page replaces the text between
"<!-- begin NAME -->" and "<!-- end NAME -->" in a page by the table NAME:
claims, runs, and figures (those in the output folder).
--ncu adds the profiler's metrics to the record, as "profiles";
--add adds the rows of another record, such as the host's, measured on the same
processor and GPU, and replaces runs that the time limit has ended. --commit
names the commit of all of them, the HASH behind a record's name that of the
record. --merged FILE keeps the record with all of these. Nothing is estimated:
values missing in the record are dashes. The plots need matplotlib; --no-plots
omits them.
"""

import argparse
import collections
import csv
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "lib"))
import svg_plots  # noqa: E402: found by the line above
import study_paper  # noqa: E402: found by the line above
from gpu_runs import table  # noqa: E402
from study_paper import (  # noqa: E402
    CONFIGURATIONS, DOUBLE, FLOAT, NAIVE, OURS, PAPER, RECOMPUTED, fit_line,
    iteration, largest_of, one_by_one, speedup, whole_run)

OPERATIONS = ["fadd", "fmul", "ffma", "dadd", "dmul", "dfma"]

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
    **{f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": op
       for op in OPERATIONS},
}
SCALES = {
    "nsecond": 1e-9, "ns": 1e-9, "usecond": 1e-6, "us": 1e-6, "msecond": 1e-3,
    "ms": 1e-3, "second": 1.0, "s": 1.0,
    "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
    "sector": 1.0, "Ksector": 1e3, "Msector": 1e6,
    "request": 1.0, "inst": 1.0, "%": 1.0, "": 1.0,
}


def read_ncu(path):
    """One row per kernel launch: kernel, layout and the metrics above; and the
    size that was profiled, which scripts/measure notes in a line of its own."""
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
               "layout": layout_of(cells["Kernel Name"]),
               "value": value_of(cells["Kernel Name"])}
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
    # Couplings are templates over whether W is explicit.
    if re.search(r"\b(Naive|Paper(Point|Camera))Coupling", name):
        name += " W" if re.search(r"<\(bool\)1|<true", kernel) else " Jc' Jp"
    return name


def value_of(kernel):
    """The type of the blocks."""
    match = re.search(r"\b(double|float)\b", kernel)
    return match.group(1) if match else ""


# The place of a kernel's BlockLayout in its template arguments, without casts
# such as "(int)" and "(ceres_ext::kernels::BlockLayout)".
LAYOUT_ARGUMENTS = (
    r"\b(?:StoredJacobian|CouplingBlocks|CouplingSource)"
    r"<(?:double|float), *(?:\d+|[\w:]+<[^<>]*>), *(\d)\b",
    r"\bEvaluateJacobianKernel<(?:double|float), *\d+, *(\d)\b",
    r"\b(?:Naive|Paper)\w+Kernel<(?:\w+, *)?(?:double|float), *(\d) *>",
)


def layout_of(kernel):
    """BlockLayout as the template arguments say it: 0 is continuous-element, 1
    block-contiguous. Empty where they don't."""
    plain = re.sub(r"\((?:int|bool|(?:\w+::)*BlockLayout)\)", "", kernel)
    for pattern in LAYOUT_ARGUMENTS:
        match = re.search(pattern, plain)
        if match:
            return "continuous" if match.group(1) == "0" else "block"
    return ""


def average_launches(rows):
    """The mean over the launches of a kernel in one layout and type, rounded."""
    groups = collections.OrderedDict()
    for row in rows:
        groups.setdefault((row["kernel"], row["layout"], row["value"]),
                          []).append(row)
    result = []
    for (kernel, layout, value), group in groups.items():
        entry = {"kernel": kernel, "layout": layout, "value": value,
                 "launches": len(group)}
        for name in METRICS.values():
            values = [row[name] for row in group if name in row]
            if values:
                entry[name] = float(f"{sum(values) / len(values):.6g}")
        result.append(entry)
    return result


def add_record(record, other, path, commit):
    """The rows of `other` that `record` lacks, or whose runs time has ended."""
    if other["machine"]["cpu"] != record["machine"]["cpu"]:
        raise SystemExit(f"{path} was measured on another processor")
    if other["machine"].get("gpu") not in (None, record["machine"].get("gpu")):
        raise SystemExit(f"{path} was measured on another GPU")
    counts = ("name", "num_cameras", "num_points", "num_observations")
    what = ("variant", "jacobian", "use_schur", "explicit_w",
            "max_lm_iterations", "max_pcg_iterations")

    def key(row):
        return (*(row.get(name) for name in what), "eta" in row)
    num_rows = 0
    for size in other["sizes"]:
        for mine in record["sizes"]:
            if all(mine[name] == size[name] for name in counts):
                for rows in ("runs", "iterations"):
                    ended = {key(row) for row in size[rows]
                             if row.get("end") != "time"}
                    mine[rows] = [row for row in mine[rows]
                                  if row.get("end") != "time"
                                  or key(row) not in ended]
                    have = {key(row) for row in mine[rows]}
                    new = [row for row in size[rows] if key(row) not in have]
                    mine[rows] += new
                    num_rows += len(new)
                mine["kernels"] = mine["kernels"] or size["kernels"]
    done = measured(record)
    have = {skip["what"] for skip in record["skipped"]}
    record["skipped"] += [skip for skip in other["skipped"]
                          if skip["what"] != "GPU"
                          and skip["what"] not in have]
    record["skipped"] = [skip for skip in record["skipped"]
                         if skip["what"] not in done]
    record.setdefault("added", []).append(
        {"date": other["date"], "settings": other["settings"],
         "num_rows": num_rows, **({"commit": commit} if commit else {})})


def measured(record):
    """The names that bal_study has for runs that it cannot do."""
    names = set()
    for size in record["sizes"]:
        for run in size["runs"]:
            parts = [run["variant"], run["jacobian"], size["name"],
                     configuration_name(run)]
            if run["variant"].startswith("host"):
                del parts[1]
            name = ", ".join(parts)
            names.add(name + ", whole run" if "eta" in run else name)
            if "eta" not in run:
                names.add(name + ", 1 x 1")
    return names


def milliseconds(seconds):
    return "–" if seconds is None else f"{1e3 * seconds:.3f}"


def number(value, pattern="{:.1f}"):
    return "–" if value is None else pattern.format(value)


def configuration_name(row):
    for use_schur, explicit_w, name in CONFIGURATIONS:
        if (row["use_schur"], row["explicit_w"]) == (use_schur, explicit_w):
            return name
    raise SystemExit("a row without configuration")


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
    variants = ["naive", "naive continuous", "paper block-contiguous", "paper",
                "cusparse CSR", "cusparse CSR J'", "cusparse BSR",
                "cuda block-contiguous"]
    out.write("\n## One PCG iteration in times ours, "
              "stored double / recomputed double\n\n")
    rows = []
    for size in record["sizes"]:
        for use_schur, explicit_w, name in CONFIGURATIONS:
            cells = []
            for variant in variants:
                found = [row for row in size["iterations"]
                         if (row["variant"], row["jacobian"], row["use_schur"],
                             row["explicit_w"]) == (variant, DOUBLE, use_schur,
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


# Whole runs and 1 x 1 that are shown: variant, Jacobian, name, colour, marker.
SERIES = [
    ("host", DOUBLE, "sequential host", "#777777", "s"),
    (NAIVE, DOUBLE, "naive, double", "#d95f02", "^"),
    (NAIVE, FLOAT, "naive, float", "#f0a35e", "^"),
    (PAPER, DOUBLE, "paper's optimised, double", "#a6197a", "P"),
    (PAPER, FLOAT, "paper's optimised, float", "#dd7cc0", "P"),
    (OURS, DOUBLE, "ours, stored", "#1b6ca8", "o"),
    (OURS, FLOAT, "ours, stored float", "#7fb2d6", "o"),
    (OURS, RECOMPUTED, "ours, recomputed", "#2a9d4a", "D"),
    (OURS, "recomputed float", "ours, recomputed float", "#7b3fa0", "v"),
]


def run_cell(run):
    """Seconds, and Levenberg-Marquardt and PCG iterations; > where time has
    ended it."""
    if not run:
        return "–"
    more = "> " if run["end"] == "time" else ""
    return (f"{more}{run['total_seconds']:.3g} s ({run['num_lm_iterations']}, "
            f"{run['num_pcg_iterations']})")


def runs_table(record):
    rows = []
    for size in record["sizes"]:
        for configuration in CONFIGURATIONS:
            runs = [whole_run(size, variant, jacobian, configuration)
                    for variant, jacobian, *_ in SERIES]
            if any(runs):
                rows.append([size["name"], configuration[2],
                             *map(run_cell, runs)])
    if not rows:
        return "No whole run with the stopping rule is in the record.\n"
    return table(["size", "configuration", *(name for *_, name, _, _ in
                                             SERIES)], rows)


def speedup_table(record, find):
    """Against the host and the naive form, by whole runs or 1 x 1."""
    rows = []
    for size in record["sizes"]:
        for configuration in CONFIGURATIONS:
            def get(variant, jacobian=DOUBLE):
                return find(size, variant, jacobian, configuration)

            def times(a, b):
                if find is whole_run:
                    value, done = speedup(a, b)
                    return "–" if value is None else f"{value:.1f} ({done})"
                return ("–" if not a or not b else
                        f"{a['total_seconds'] / b['total_seconds']:.1f}")
            cells = [times(get("host"), get(NAIVE)),
                     times(get("host"), get(PAPER)),
                     times(get("host"), get(OURS)),
                     times(get("host"), get(OURS, RECOMPUTED)),
                     times(get(NAIVE), get(PAPER)),
                     times(get(NAIVE), get(OURS)),
                     times(get(NAIVE, FLOAT), get(PAPER, FLOAT))]
            if any(cell != "–" for cell in cells):
                rows.append([size["name"], size["num_observations"],
                             configuration[2], *cells])
    if not rows:
        return "None of these is in the record.\n"
    return table(["size", "projections", "configuration", "host / naive",
                  "host / paper", "host / ours", "host / ours, recomputed",
                  "naive / paper", "naive / ours",
                  "naive / paper, float"], rows)


def profile_table(profile, kernels):
    rows = []
    order = list(dict.fromkeys(row["kernel"] for row in kernels))
    for row in sorted(kernels, key=lambda row: (
            order.index(row["kernel"]), row.get("value", ""),
            row["layout"] != "continuous")):
        def per_request(op):
            requests = row.get(f"{op}_requests")
            return (row[f"{op}_sectors"] / requests
                    if requests and f"{op}_sectors" in row else None)
        rows.append([
            row["kernel"], row.get("value", ""), row["layout"],
            number(row.get("load_efficiency_percent")),
            number(per_request("load")),
            number(row.get("store_efficiency_percent")),
            number(per_request("store")),
            number(1e-6 * (row.get("dram_bytes_read", 0)
                           + row.get("dram_bytes_written", 0))),
            milliseconds(row.get("seconds"))])
    return f"\n{profile['size']}:\n\n" + table(
        ["kernel", "type", "layout", "load efficiency, %", "sectors per load",
         "store efficiency, %", "sectors per store", "DRAM, MB", "ms"], rows)


def write_paper_tables(record, out):
    """Tables 1 to 5 with what the paper has, and Figure 14."""
    by_name = {size["name"]: size for size in record["sizes"]}
    out.write("\n## Table 1: rank-deficient cameras\n\n")
    out.write("The paper takes these cameras out of the data of BAL: "
              + "; ".join(f"{place} {cameras}"
                          for place, cameras in study_paper.TABLE_1)
              + ". Here, by the blocks of J'J at the start, undamped:\n\n")
    out.write(table(["size", "rank-deficient cameras", "points"], [
        [size["name"], size["rank_deficient"]["cameras"],
         size["rank_deficient"]["points"]]
        if "rank_deficient" in size else [size["name"], "–", "–"]
        for size in record["sizes"]]))

    out.write("\n## Table 2: sizes, the paper's original and modified ones\n\n")
    out.write(table(
        ["size", "cameras", "points", "projections", "modified: cameras",
         "points", "projections"], study_paper.TABLE_2))

    out.write("\n## Table 3: operations of the product with W\n\n")
    out.write("As the paper counts: 33 and 36 instructions for W e per "
              "projection of the modified sizes,\na fused multiply-add being "
              "one, and one addition each for the sum.\n\n")
    rows = []
    for (name, *counts), (implicit, explicit) in zip(study_paper.TABLE_2,
                                                     study_paper.TABLE_3):
        n = counts[-1]
        rows.append([name, implicit, 33 * n, explicit, 36 * n])
    out.write(table(["size", "implicit, paper", "33 n", "explicit, paper",
                     "36 n"], rows))
    out.write("\nOperations per observation, counted by a number type:\n\n")
    out.write(table(
        ["product", "multiplications", "additions", "values read"],
        [[row["product"], row["counted"]["multiplications"],
          row["counted"]["additions"], row["counted"]["loads"]]
         for row in record["operations"]]))
    executed = [(profile["size"], row) for profile in record.get("profiles", [])
                for row in profile["kernels"]
                if any(row.get(op) for op in OPERATIONS)]
    if executed:
        out.write("\nFloating-point instructions executed per observation, from "
                  "the profiler (with all that a kernel does beside W):\n\n")
        rows = []
        for name, row in executed:
            n = by_name[name]["num_observations"]
            rows.append([name, row["kernel"], row["value"], row["layout"],
                         *(number(row.get(op, 0) / n) for op in OPERATIONS)])
        out.write(table(["size", "kernel", "type", "layout", *OPERATIONS],
                        rows))

    largest = largest_of(record)
    out.write("\n## Table 4: normal equation and one PCG iteration, "
              f"{largest['name']} size, ms\n\n")
    out.write("Normal equation: J, U, V, W, right-hand side and factors, as "
              "the paper's; J beside column norms and blocks below.\n\n")
    rows = []
    for configuration, theirs in zip(CONFIGURATIONS, study_paper.TABLE_4):
        cells = []
        for variant, jacobian in ((PAPER, FLOAT), (PAPER, DOUBLE),
                                  (NAIVE, DOUBLE), (OURS, DOUBLE),
                                  (OURS, RECOMPUTED)):
            row = iteration(largest, variant, jacobian, configuration)
            cells.append("–" if not row else milliseconds(
                row["linearize_seconds"] + row["normal_blocks_seconds"])
                + " / " + milliseconds(row["pcg_iteration_seconds"]))
        rows.append([configuration[2], f"{theirs[0]} / {theirs[1]}", *cells])
    out.write(table(
        ["configuration", "the paper, A30", "paper's kernels, float",
         "paper's kernels, double", "naive, double", "ours, stored",
         "ours, recomputed"], rows))
    rows = []
    for row in largest["iterations"]:
        seconds = row["pcg_iteration_seconds"]
        rows.append([
            row["variant"], row["jacobian"], configuration_name(row),
            milliseconds(row["linearize_seconds"]),
            milliseconds(row["normal_blocks_seconds"]),
            milliseconds(seconds),
            ratio(seconds, our_iteration(largest, DOUBLE, row)),
            ratio(seconds, our_iteration(largest, RECOMPUTED, row)),
            number(row.get("step_difference"), "{:.1e}")])
    if rows:
        out.write("\nAll variants:\n\n")
        out.write(table(
            ["variant", "Jacobian", "configuration",
             "J and column norms", "U, V, W, rhs, factors",
             "PCG iteration", "times ours, stored double",
             "times ours, recomputed double", "step difference"], rows))
        out.write(
            "\nTimes ours: of the same configuration; recomputed Jacobians have"
            " no explicit W,\nso there it is the one with implicit W.\n")
    write_ratios(record, out)

    out.write("\n## Table 5: profile of the Jacobian's kernel\n\n")
    rows = []
    for (name, *_), (naive, optimised) in zip(study_paper.TABLE_2,
                                              study_paper.TABLE_5):
        for form, layout, theirs in (("naive", "block", naive),
                                     ("optimised", "continuous", optimised)):
            cells = []
            for value in ("float", "double"):
                row = study_paper.table_5_row(
                    record, "PaperJacobianKernel", layout, value, name)
                for op in ("load", "store"):
                    cells.append("–" if not row else
                                 f"{row[f'{op}_efficiency_percent']:.1f} % "
                                 f"({row[f'{op}_sectors'] / row[f'{op}_requests']:.1f})")
            rows.append([name, form, f"{theirs[0]} % ({theirs[1]})",
                         f"{theirs[2]} % ({theirs[3]})", *cells])
    out.write(table(
        ["size", "form", "loads, paper", "stores, paper", "loads, float",
         "stores, float", "loads, double", "stores, double"], rows))
    out.write("\nEfficiency: bytes used of bytes moved; in parentheses "
              "transactions per request. A request of a warp is 128 B of float "
              "or 256 B of double:\n4 or 8 sectors of 32 B at least, 32 at "
              "most.\n")
    for profile in record.get("profiles", []):
        out.write(profile_table(profile, profile["kernels"]))

    out.write("\n## Figure 14: largest difference of final projections, "
              "pixels\n\n")
    out.write("From those of our kernels with stored Jacobians in double, in "
              "the same configuration, over all observations.\n\n")
    rows = []
    for size in record["sizes"]:
        for configuration in CONFIGURATIONS:
            cells = [number((whole_run(size, variant, jacobian, configuration)
                             or {}).get("pixel_difference"), "{:.1e}")
                     for variant, jacobian, *_ in SERIES
                     if (variant, jacobian) != (OURS, DOUBLE)]
            if any(cell != "–" for cell in cells):
                rows.append([size["name"], configuration[2], *cells])
    if rows:
        out.write(table(["size", "configuration",
                         *(name for variant, jacobian, name, _, _ in SERIES
                           if (variant, jacobian) != (OURS, DOUBLE))], rows))
    else:
        out.write("None of these is in the record.\n")


def write_tables(record, out):
    machine = record["machine"]
    out.write("Measured " + record["date"] + " on "
              + machine.get("gpu", "no GPU") + " and " + machine["cpu"]
              + f" ({machine['hardware_threads']} hardware threads)"
              + (f", commit {record['commit']}" if "commit" in record else "")
              + ".\n")
    if machine.get("copy_bytes_per_second"):
        out.write("Copy within the device: "
                  f"{1e-9 * machine['copy_bytes_per_second']:.0f} GB/s.\n")
    for done in [record, *record.get("added", [])]:
        settings = done["settings"]
        if any(part.startswith("host") for part in settings.get("parts", [])):
            out.write(f"The host, {done['date']}: {settings['host_threads']} "
                      "thread, alone, compiled for "
                      f"{settings.get('host_instructions', '?')}.\n")
        if "commit" in done and done is not record:
            out.write(f"{done['num_rows']} rows are of {done['date']}, commit "
                      f"{done['commit']}: whole runs or 1 x 1, "
                      + ", ".join(settings.get("sizes", [])) + ".\n")
    write_paper_tables(record, out)

    out.write("\n## Figures 15 to 17: whole runs with the stopping rule\n\n")
    settings = record["settings"]
    out.write(f"At most {settings['num_lm_iterations']} x "
              f"{settings['num_pcg_iterations']}, eta "
              f"{settings.get('eta', '–')}, function tolerance "
              f"{settings.get('function_tolerance', '–')}; in parentheses "
              "Levenberg-Marquardt and PCG iterations.\n\n")
    out.write(runs_table(record))
    out.write("\n## Figure 18: speed-up of whole runs\n\nOver the "
              "Levenberg-Marquardt iterations, in parentheses, that both have "
              "done. The host's runs are timed once: the first touch of its "
              "memory is in them.\n\n")
    out.write(speedup_table(record, whole_run))
    out.write("\n## Figure 19: speed-up of 1 LM x 1 PCG\n\n")
    out.write("The host's runs of over five seconds are timed once: the first "
              "touch of its memory is in them.\n\n")
    out.write(speedup_table(record, one_by_one))
    out.write("\n## Figure 20: 1 LM x 1 PCG, least-squares lines\n\n")
    rows = []
    for variant, jacobian, name, _, _ in SERIES:
        for configuration in CONFIGURATIONS:
            points = [(size["num_observations"], run["total_seconds"])
                      for size in record["sizes"]
                      for run in [one_by_one(size, variant, jacobian,
                                             configuration)] if run]
            if len(points) > 2:
                slope, offset, r2 = fit_line(*zip(*points))
                rows.append([name, configuration[2], f"{1e9 * slope:.4g}",
                             f"{1e3 * offset:.3g}", f"{r2:.4f}"])
    out.write(table(["variant", "configuration", "ns per projection",
                     "offset, ms", "R2"], rows))

    largest = largest_of(record)
    if largest["kernels"]:
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
        out.write(skipped_table(record))


def skipped_table(record):
    """A row for each variant that was not measured, with its sizes and, if not
    all four, the number of configurations."""
    names = [size["name"] for size in record["sizes"]]
    groups = {}
    for row in record["skipped"]:
        parts = row["what"].split(", ")
        name = next((part for part in parts if part in names), "")
        place = parts.index(name) if name else len(parts)
        # The configuration is two parts after the size.
        what = ", ".join(parts[:place] + parts[place + 3:])
        sizes = groups.setdefault((what, row["why"]), {})
        sizes[name] = sizes.get(name, 0) + 1
    return table(["what", "sizes (configurations)", "why"], [
        [what, ", ".join(f"{name} ({sizes[name]})" for name in ["", *names]
                         if name in sizes), why]
        for (what, why), sizes in groups.items()])


def plot(record, folder):
    plt = svg_plots.use_svg()

    sizes = sorted(record["sizes"], key=lambda size: size["num_observations"])

    def save(figure, name):
        svg_plots.save(figure, folder / name)
        plt.close(figure)
        print(folder / name)

    # get(size, variant, jacobian, configuration) -> a number or None.
    def draw(axes, configuration, get, series):
        drawn = False
        for variant, jacobian, label, color, marker in series:
            data = [(size["num_observations"],
                     get(size, variant, jacobian, configuration))
                    for size in sizes]
            data = [(x, y) for x, y in data if y is not None]
            if data:
                drawn = True
                axes.plot(*zip(*data), marker=marker, markersize=4,
                          color=color, linewidth=1, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(True, which="major", linewidth=0.3)
        axes.set_xlabel("projections")
        axes.set_title(configuration[2], fontsize=9)
        return drawn

    def panels(name, configurations, get, series, ylabel):
        figure, axes = plt.subplots(
            len(configurations) // 2, 2, sharex=True, sharey=True,
            figsize=(10, 3.6 * len(configurations) / 2 + 0.9), squeeze=False,
            layout="constrained")
        drawn = [draw(ax, configuration, get, series)
                 for ax, configuration in zip(axes.flat, configurations)]
        for ax in axes[:, 0]:
            ax.set_ylabel(ylabel)
        if any(drawn):
            handles = {}
            for ax in axes.flat:
                for handle, label in zip(*ax.get_legend_handles_labels()):
                    handles.setdefault(label, handle)
            figure.legend(handles.values(), handles.keys(), fontsize=7,
                          loc="outside upper center",
                          ncols=(len(handles) + 1) // 2)
            save(figure, name)
        else:
            plt.close(figure)

    def finished(size, variant, jacobian, configuration):
        run = whole_run(size, variant, jacobian, configuration)
        return run["total_seconds"] if run and run["end"] != "time" else None

    def over(base, find):
        def get(size, variant, jacobian, configuration):
            a = find(size, base, DOUBLE, configuration)
            b = find(size, variant, jacobian, configuration)
            if find is whole_run:
                return speedup(a, b)[0]
            return a["total_seconds"] / b["total_seconds"] if a and b else None
        return get

    def pixels(size, variant, jacobian, configuration):
        run = whole_run(size, variant, jacobian, configuration)
        # Zero has no place on a logarithmic axis.
        return run and run.get("pixel_difference") or None

    panels("figure_14.svg", CONFIGURATIONS, pixels, SERIES,
           "largest difference, pixels")
    panels("figure_15_16.svg", CONFIGURATIONS, finished, SERIES, "seconds")
    panels("figure_18_host.svg", CONFIGURATIONS, over("host", whole_run),
           SERIES[1:], "times the host")
    panels("figure_18_naive.svg", CONFIGURATIONS, over(NAIVE, whole_run),
           SERIES[3:], "times the naive form, double")
    panels("figure_19_host.svg", CONFIGURATIONS, over("host", one_by_one),
           SERIES[1:], "times the host, 1 x 1")
    panels("figure_19_naive.svg", CONFIGURATIONS, over(NAIVE, one_by_one),
           SERIES[3:], "times the naive form, double, 1 x 1")

    def bars(name, rows, xlabel):
        """rows: label, value, colour."""
        if not rows:
            return
        figure, ax = plt.subplots(figsize=(8, 0.24 * len(rows) + 0.9),
                                  layout="constrained")
        drawn = ax.barh(range(len(rows)), [row[1] for row in rows],
                        color=[row[2] for row in rows])
        ax.bar_label(drawn, [f"{row[1]:.3g}" for row in rows], fontsize=7,
                     padding=2)
        ax.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=7)
        ax.invert_yaxis()
        ax.margins(x=0.1, y=0.01)
        ax.set_xlabel(xlabel)
        save(figure, name)

    largest = sizes[-1]
    rows = []
    for configuration in CONFIGURATIONS:
        for variant, jacobian, label, color, _ in SERIES:
            seconds = finished(largest, variant, jacobian, configuration)
            if seconds is not None:
                rows.append((f"{configuration[2]}: {label}", seconds, color))
    bars("figure_17.svg", rows, f"seconds, {largest['name']} size")
    colors = {"cuda": "#1b6ca8", "naiv": "#d95f02", "pape": "#a6197a"}
    bars("table_4.svg",
         [(f"{row['variant']}, {row['jacobian']}, {configuration_name(row)}",
           1e3 * row["pcg_iteration_seconds"],
           colors.get(row["variant"][:4], "#777777"))
          for row in largest["iterations"]],
         f"one PCG iteration, ms, {largest['name']} size")

    # Figure 20: the device alone, on linear axes.
    figure, axes = plt.subplots(2, 2, sharex=True, sharey=True,
                                figsize=(10, 7.8), layout="constrained")
    drawn = False
    for ax, configuration in zip(axes.flat, CONFIGURATIONS):
        for variant, jacobian, label, color, marker in SERIES[1:]:
            data = [(1e-6 * size["num_observations"],
                     1e3 * run["total_seconds"]) for size in sizes
                    for run in [one_by_one(size, variant, jacobian,
                                           configuration)] if run]
            if len(data) < 3:
                continue
            drawn = True
            slope, offset, _ = fit_line(*zip(*data))
            ax.plot(*zip(*data), marker=marker, markersize=4, linestyle="",
                    color=color, label=f"{label}: {slope:.3g} ns each")
            ends = [data[0][0], data[-1][0]]
            ax.plot(ends, [slope * x + offset for x in ends], color=color,
                    linewidth=0.8)
        ax.set_title(f"{configuration[2]}, 1 LM x 1 PCG", fontsize=9)
        ax.set_xlabel("million projections")
        ax.set_ylabel("ms")
        ax.grid(True, linewidth=0.3)
        if ax.has_data():
            ax.legend(fontsize=7, loc="upper left")
    if drawn:
        save(figure, "figure_20.svg")


FIGURES = [
    ("figure_14", "Figure 14: largest difference of final projections"),
    ("figure_15_16", "Figures 15 and 16: whole runs, implicit and explicit W"),
    ("figure_17", "Figure 17: whole runs at the largest size that time has not "
     "ended"),
    ("figure_18_host", "Figure 18: speed-up of whole runs over the host"),
    ("figure_18_naive", "Figure 18: the same over the naive form"),
    ("figure_19_host", "Figure 19: speed-up of 1 x 1 over the host"),
    ("figure_19_naive", "Figure 19: the same over the naive form"),
    ("figure_20", "Figure 20: 1 x 1 by projections, with least-squares lines"),
]


def fill_page(page, folder, record):
    """Replaces the tables of a page, those between comments; folder: of the
    plots."""
    plots = [f"![{caption}]({folder.name}/{name}.svg)\n"
             for name, caption in FIGURES if (folder / f"{name}.svg").exists()]
    tables = {
        "figures": "\n".join(plots),
        "claims": table(["the paper says", "here", "holds?"],
                        study_paper.claims(record)),
        "runs": runs_table(record)}
    text = page.read_text()
    for name, content in tables.items():
        text = re.sub(
            rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)",
            lambda match, content=content: match.group(1) + content
            + match.group(2), text, flags=re.DOTALL)
    page.write_text(text)
    print(page)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("record", type=pathlib.Path)
    parser.add_argument("--ncu", type=pathlib.Path, action="append",
                        default=[])
    parser.add_argument("--add", action="append", default=[])
    parser.add_argument("--commit")
    parser.add_argument("--ncu-size",
                        help="where a file of --ncu doesn't say it")
    parser.add_argument("--merged", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--tables", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path, action="append",
                        default=[])
    parser.add_argument("--no-plots", action="store_true")
    arguments = parser.parse_args()

    record = json.loads(arguments.record.read_text())
    if record.get("format") != "ceres_ext_study":
        raise SystemExit(f"{arguments.record} is not a record of bal_study")
    if arguments.commit:
        record["commit"] = arguments.commit
    for path in arguments.ncu:
        launches, size = read_ncu(path)
        size = arguments.ncu_size or size
        if not size:
            raise SystemExit(f"{path} doesn't say its size; give --ncu-size")
        profiles = [profile for profile in record.get("profiles", [])
                    if profile["size"] != size]
        record["profiles"] = profiles + [
            {"size": size, "kernels": average_launches(launches)}]
    for name in arguments.add:
        path, _, commit = name.partition("@")
        add_record(record, json.loads(pathlib.Path(path).read_text()), path,
                   commit)
    if arguments.merged:
        arguments.merged.write_text(json.dumps(record, indent=1) + "\n")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
    if arguments.tables:
        arguments.tables.parent.mkdir(parents=True, exist_ok=True)
        with open(arguments.tables, "w") as out:
            write_tables(record, out)
        print(arguments.tables)
    else:
        write_tables(record, sys.stdout)
    if arguments.output and not arguments.no_plots:
        plot(record, arguments.output)
    for page in arguments.page:
        fill_page(page, arguments.output or page.parent, record)


if __name__ == "__main__":
    main()
