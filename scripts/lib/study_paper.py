# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The measurements and claims of Kommera, Muknahallipatna and McInroy (2024), and
the answer of a record of bal_study to each. Every number of the claims' "here"
comes from the record; missing ones are NOT_MEASURED."""

NOT_MEASURED = "not measured"
NAIVE, PAPER, OURS = "naive", "paper", "cuda"
DOUBLE, FLOAT = "stored double", "stored float"
RECOMPUTED = "recomputed double"

CONFIGURATIONS = [
    (False, False, "no Schur, implicit W"),
    (False, True, "no Schur, explicit W"),
    (True, False, "Schur, implicit W"),
    (True, True, "Schur, explicit W"),
]

# Its machine: NVIDIA A30, AMD EPYC 7713P.
A30_BYTES_PER_SECOND = 933.1e9

# Location, cameras taken out for being rank-deficient.
TABLE_1 = [("Dubrovnik", "105, 125"), ("Final", "724, 460"),
           ("Trafalgar Square", "72"), ("Venice", "34, 49, 138, 584")]

# Name here, cameras, points, projections; the same after cameras of Table 1
# have gone.
TABLE_2 = [
    ("trafalgar-21", 21, 11315, 36455, 21, 11315, 36455),
    ("dubrovnik-88", 88, 64298, 383937, 88, 64298, 383937),
    ("dubrovnik-182", 182, 116770, 668705, 182, 116770, 668705),
    ("venice-245", 245, 198739, 1091386, 243, 198340, 1084136),
    ("venice-744", 744, 543562, 3058863, 741, 543163, 3050099),
    ("venice-951", 951, 708276, 3748892, 947, 707877, 3738748),
    ("venice-1288", 1288, 866452, 4383006, 1284, 866053, 4373425),
    ("final-1936", 1936, 649673, 5213733, 1936, 649673, 5213733),
    ("final-4585", 4585, 1324582, 9125125, 4584, 1324582, 9123988),
    ("final-13682", 13682, 4456117, 28987644, 13678, 4455747, 28975571),
]

# Floating-point operations of W e, implicit and explicit W, by size.
TABLE_3 = [(1203015, 1312380), (12669921, 13821732), (22067265, 24073380),
           (35776488, 39028896), (100653267, 109803561),
           (123378684, 134594928), (144323025, 157443300),
           (172053189, 187694388), (301091604, 328463568),
           (956193843, 1043120556)]

# Milliseconds of the augmented normal equation and of one PCG iteration, by
# configuration.
TABLE_4 = [(50, 70), (135, 74), (49, 55), (135, 57)]

# Naive and optimised: load efficiency in per cent, transactions per load; the
# same for stores. By size.
TABLE_5 = [
    ((31.21, 4.82, 13.33, 29.98), (52.75, 2.83, 82.75, 4.83)),
    ((28.16, 8.47, 13.33, 30), (41.57, 5.74, 82.76, 4.83)),
    ((28.14, 8.58, 13.33, 30), (38.71, 6.24, 82.76, 4.83)),
    ((28.18, 8.54, 13.33, 30), (38.85, 6.19, 100, 4)),
    ((28.07, 8.79, 13.33, 30), (34.08, 7.24, 82.76, 4.83)),
    ((28.22, 8.45, 13.33, 30), (33.83, 7.07, 88.89, 4.5)),
    ((28.32, 8.26, 13.33, 30), (33.77, 6.92, 82.76, 4.83)),
    ((27.47, 10.41, 13.33, 30), (32.65, 8.65, 82.76, 4.83)),
    ((27.81, 9.34, 13.33, 30), (30.01, 8.47, 88.89, 4.5)),
    ((27.68, 9.85, 13.33, 30), (29.96, 8.92, 82.76, 4.83)),
]


def of(rows, variant, jacobian, configuration):
    for row in rows:
        if (row["variant"], row["jacobian"], row["use_schur"],
                row["explicit_w"]) == (variant, jacobian, *configuration[:2]):
            return row
    return None


def whole_run(size, variant, jacobian, configuration):
    return of([row for row in size["runs"] if "eta" in row], variant, jacobian,
              configuration)


def one_by_one(size, variant, jacobian, configuration):
    return of([row for row in size["runs"]
               if row["max_lm_iterations"] == 1 and "eta" not in row],
              variant, jacobian, configuration)


def iteration(size, variant, jacobian, configuration):
    return of(size["iterations"], variant, jacobian, configuration)


def speedup(run, other):
    """How many times `other` is faster, over the Levenberg-Marquardt iterations
    that both have done, and how many these are."""
    if not run or not other:
        return None, 0
    done = min(run["num_lm_iterations"], other["num_lm_iterations"])
    if done == 0:
        return None, 0
    return run["lm_seconds"][done - 1] / other["lm_seconds"][done - 1], done


def largest_of(record):
    return max(record["sizes"], key=lambda size: size["num_observations"])


def table_5_row(record, kernel, layout, value, size=None):
    """The row of the profile at `size`, the largest where that is None."""
    rows = [row for profile in record.get("profiles", [])
            if size in (None, profile["size"])
            for row in profile["kernels"]
            if (row["kernel"], row["layout"], row.get("value", "double"))
            == (kernel, layout, value)]
    return max(rows, key=lambda row: row["load_requests"]) if rows else None


def span(values, pattern="{:.1f}"):
    """"from a to b" of the known values."""
    values = [value for value in values if value is not None]
    if not values:
        return None
    low, high = pattern.format(min(values)), pattern.format(max(values))
    return low if low == high else f"{low} to {high}"


def claims(record):
    """Rows (what the paper says, what is found here, whether it holds). A
    verdict stands only where there is something to judge by."""
    sizes = sorted(record["sizes"], key=lambda size: size["num_observations"])
    largest = largest_of(record)
    schur = CONFIGURATIONS[2]
    host = "host"
    rows = []

    def add(says, here, holds):
        """here: a text, or nothing; holds: a truth, a text, or None."""
        if not here:
            rows.append((says, NOT_MEASURED, "–"))
        elif isinstance(holds, str) or holds is None:
            rows.append((says, here, holds or "–"))
        else:
            rows.append((says, here, "yes" if holds else "no"))

    def ratios(function):
        return [value for value in map(function, sizes) if value is not None]

    # The headline. A part that is not in the record says so.
    copy = record["machine"].get("copy_bytes_per_second")
    shown = [(name, whole_run(largest, variant, jacobian, schur))
             for name, variant, jacobian in (
                 ("the paper's in float", PAPER, FLOAT),
                 ("the paper's in double", PAPER, DOUBLE),
                 ("naive in double", NAIVE, DOUBLE),
                 ("ours, stored double", OURS, DOUBLE),
                 ("ours, recomputed double", OURS, RECOMPUTED))]
    here, holds = None, None
    if copy and any(run for _, run in shown):
        by_bandwidth = 22 * A30_BYTES_PER_SECOND / copy
        here = "; ".join(
            f"{name} {NOT_MEASURED}" if not run else
            f"{name} {'> ' if run['end'] == 'time' else ''}"
            f"{run['total_seconds']:.2f} s ({run['num_lm_iterations']} LM, "
            f"{run['num_pcg_iterations']} PCG)" for name, run in shown)
        here += (f"; at {1e-9 * copy:,.0f} GB/s; by bandwidth 22 s would be "
                 f"{by_bandwidth:.1f}")
        faster = [name for name, run in shown if run and run["end"] != "time"
                  and run["total_seconds"] < by_bandwidth]
        holds = ("faster than by bandwidth: " + (", ".join(faster) or "none")
                 + "; other data, other iterations")
    add("22 s at the largest size, on an A30 with 933 GB/s", here,
        holds)
    shown = [(name, iteration(largest, variant, jacobian, schur))
             for name, variant, jacobian in (
                 ("the paper's", PAPER, FLOAT), ("naive", NAIVE, FLOAT),
                 ("ours", OURS, FLOAT))]
    here, holds = None, None
    if copy and all(row for _, row in shown):
        by_bandwidth = TABLE_4[2][1] * A30_BYTES_PER_SECOND / copy
        times = [(name, 1e3 * row["pcg_iteration_seconds"])
                 for name, row in shown]
        here = (", ".join(f"{name} {value:.1f}" for name, value in times)
                + " ms, all in float; by bandwidth 55 ms would be "
                f"{by_bandwidth:.1f}")
        holds = ("faster than by bandwidth: "
                 + (", ".join(name for name, value in times
                              if value < by_bandwidth) or "none"))
    add("55 ms a PCG iteration there (Schur, implicit W)", here, holds)

    def against_host(variant, jacobian, configuration):
        return speedup(whole_run(largest, host, DOUBLE, configuration),
                       whole_run(largest, variant, jacobian, configuration))
    for says, least, configurations in (
            ("30 times the sequential one at the largest size, with Schur "
             "complement and implicit W", 30, [schur]),
            ("more than 25 times in every configuration there", 25,
             CONFIGURATIONS)):
        found = [against_host(PAPER, DOUBLE, c) for c in configurations]
        found = [(value, done) for value, done in found if value is not None]
        values = [value for value, _ in found]
        done = min((n for _, n in found), default=0)
        whole = all(whole_run(largest, v, DOUBLE, c)["end"] != "time"
                    for c in configurations for v in (host, PAPER)) \
            if len(found) == len(configurations) else False
        above = bool(values) and min(values) >= least
        add(says, values and f"{span(values, '{:.0f}')} times"
            + ("" if whole else f" over the first {done} LM iteration"
               + ("" if done == 1 else "s")
               + " alone, the host's first touch of its memory included")
            or None,
            above if whole or not above else
            "over whole runs not measured; in the first iteration yes")

    def naive_over_paper(size, configuration=schur):
        return speedup(whole_run(size, NAIVE, DOUBLE, configuration),
                       whole_run(size, PAPER, DOUBLE, configuration))[0]

    def one_by_one_ratio(other, variant):
        """How many times `variant` is faster than `other`."""
        def at(size, configuration=schur):
            a = one_by_one(size, other, DOUBLE, configuration)
            b = one_by_one(size, variant, DOUBLE, configuration)
            return (a["total_seconds"] / b["total_seconds"] if a and b
                    else None)
        return at

    def both(runs, ones):
        """Whole runs and 1 x 1, at as many sizes as there are."""
        return "; ".join(
            f"{what} {span(values)} times"
            + (f" ({len(values)} size{'' if len(values) == 1 else 's'})")
            for what, values in (("whole runs", runs), ("1 x 1", ones))
            if values) or None
    short = one_by_one_ratio(NAIVE, PAPER)
    for says, where, least in (
            ("3 times the naive one at the largest size", [largest], 3),
            ("the optimised one is faster than the naive one at all sizes",
             sizes, 1)):
        runs, ones = ([value for value in map(function, where)
                       if value is not None]
                      for function in (naive_over_paper, short))
        add(says, both(runs, ones), min(runs + ones, default=0) > least)
    small = [size for size in sizes if size["num_cameras"] < 700]
    runs = [speedup(whole_run(size, host, DOUBLE, schur),
                    whole_run(size, NAIVE, DOUBLE, schur))[0]
            for size in small]
    runs = [value for value in runs if value is not None]
    ones = [value for value in map(one_by_one_ratio(host, NAIVE), small)
            if value is not None]
    here = both(runs, ones)
    add("below 700 cameras the naive one is slower than the sequential one",
        here and "the naive one is faster: " + here
        + ("" if runs else f"; whole runs {NOT_MEASURED}")
        if min(runs + ones, default=0) > 1 else here,
        max(runs + ones, default=2) < 1)

    # Explicit W.
    def ratio_of_w(variant, key, use_schur):
        implicit = iteration(largest, variant, DOUBLE, (use_schur, False))
        explicit = iteration(largest, variant, DOUBLE, (use_schur, True))
        if not implicit or not explicit:
            return None
        return key(explicit) / key(implicit)

    def blocks(row):
        return row["linearize_seconds"] + row["normal_blocks_seconds"]

    def pcg(row):
        return row["pcg_iteration_seconds"]
    for says, key, low, high, otherwise in (
            ("the normal equation costs 2.7 times as much with explicit W",
             blocks, 2.5, 3.0, "no: it costs more, but by less"),
            ("a PCG iteration costs 4 to 6 % more with explicit W", pcg, 1.03,
             1.07, "more, by another amount")):
        theirs = [ratio_of_w(PAPER, key, s) for s in (False, True)]
        ours = [ratio_of_w(OURS, key, s) for s in (False, True)]
        if None in theirs:
            theirs = []
        add(says, f"{span(theirs, '{:.2f}')} times with the paper's kernels, "
            f"{span(ours, '{:.2f}')} with ours" if theirs
            else f"{span(ours, '{:.2f}')} times with ours" if None not in ours
            else None, "–" if not theirs else
            "yes" if low <= min(theirs) and max(theirs) <= high else
            otherwise if min(theirs) > 1 else "no")
    totals = []
    for variant in (NAIVE, PAPER, OURS):
        for use_schur in (False, True):
            totals.append(speedup(
                whole_run(largest, variant, DOUBLE, (use_schur, True)),
                whole_run(largest, variant, DOUBLE, (use_schur, False)))[0])
    totals = [value for value in totals if value is not None]
    add("whole runs take longer with explicit W, in every configuration",
        totals and f"{span(totals, '{:.2f}')} times as long (naive, the "
        "paper's, ours; the largest size)" or None,
        totals and min(totals) > 1)
    pairs = [(iteration(largest, v, DOUBLE, (False, False)),
              iteration(largest, v, DOUBLE, schur)) for v in (PAPER, OURS)]
    add("a PCG iteration is cheaper with Schur complement (55 against 70 ms)",
        "; ".join(f"{1e3 * pcg(b):.2f} against {1e3 * pcg(a):.2f} ms "
                  f"({name})"
                  for (a, b), name in zip(pairs, ("the paper's", "ours"))
                  if a and b) or None,
        all(pcg(b) < pcg(a) for a, b in pairs if a and b)
        if any(a and b for a, b in pairs) else None)
    n = largest["num_observations"]
    w = next((row["counted"] for row in record["operations"]
              if row["product"] == "explicit, W e"), None)
    implicit = next((row["counted"] for row in record["operations"]
                     if row["product"] == "implicit, W e"), None)
    if w and implicit:
        def counted(counts):
            return counts["multiplications"] + counts["additions"]
        add("W e takes more operations explicit than implicit (36 n against "
            "33 n)", f"{counted(w)} n against {counted(implicit)} n "
            "multiplications and additions; fused, by the paper's way of "
            "counting, 36 n against 33 n", counted(w) > counted(implicit))
    add("W would take huge memory",
        f"{1e-9 * 27 * 8 * n:.2f} GB in double beside {1e-9 * 24 * 8 * n:.2f} "
        "of Jacobian", True)

    # The layout.
    def over(variant, other, jacobian, configuration):
        return lambda size: (
            lambda a, b: a and b and pcg(a) / pcg(b))(
                iteration(size, variant, jacobian, configuration),
                iteration(size, other, jacobian, configuration))
    for name, block, continuous in (
            ("the paper's optimised kernels", "paper block-contiguous", PAPER),
            ("the naive kernels", NAIVE, "naive continuous"),
            ("our kernels", "cuda block-contiguous", OURS)):
        values = [value for c in CONFIGURATIONS
                  for value in ratios(over(block, continuous, DOUBLE, c))]
        add(f"the continuous-element layout makes it faster: {name}, a PCG "
            "iteration", values and "block-contiguous takes "
            f"{span(values, '{:.2f}')} times as long" or None,
            values and (True if min(values) > 1.0 else
                        False if max(values) <= 1.0 else "in part"))
    for layout, naive, paper in (
            ("block-contiguous", NAIVE, "paper block-contiguous"),
            ("continuous-element", "naive continuous", PAPER)):
        values = [value for c in CONFIGURATIONS
                  for value in ratios(over(naive, paper, DOUBLE, c))]
        add("a block per camera and a thread per point are faster than atomics: "
            f"both {layout}, a PCG iteration",
            values and f"{span(values, '{:.2f}')} times" or None,
            values and (True if min(values) > 1.0 else
                        False if max(values) <= 1.0 else "in part"))
    stored = [table_5_row(record, "PaperJacobianKernel", layout, "float")
              for layout in ("block", "continuous")]
    for op, says, holds in (
            ("store", "stores of the Jacobian kernel use 13.3 % of their bytes "
             "naive and 83 to 100 % optimised (30 and 5 transactions)",
             lambda a, b: a < 15 and b > 80),
            ("load", "loads of the Jacobian kernel use 28 and 30 % at the "
             "largest size (9.9 and 8.9 transactions)",
             lambda a, b: abs(a - 28) < 3 and abs(b - 30) < 3)):
        here = None
        if all(stored):
            values = [row[f"{op}_efficiency_percent"] for row in stored]
            sectors = [row[f"{op}_sectors"] / row[f"{op}_requests"]
                       for row in stored]
            here = (f"{values[0]:.1f} and {values[1]:.1f} % in float "
                    f"({sectors[0]:.1f} and {sectors[1]:.1f} sectors of 32 B)")
        add(says, here, here and holds(*values))

    # Accuracy.
    differences = []
    for size in sizes:
        for c in CONFIGURATIONS:
            costs = [whole_run(size, v, DOUBLE, c) for v in (NAIVE, PAPER)]
            if all(costs) and all(run["end"] != "time" for run in costs):
                a, b = (run["final_cost"] for run in costs)
                differences.append(100 * abs(a - b) / a)
    add("the final error of naive and optimised differs by 0.22 % on average, "
        "2.5 % at most",
        differences and f"{sum(differences) / len(differences):.2g} % on "
        f"average, {max(differences):.2g} % at most" or None,
        differences and max(differences) <= 2.5)
    pixels = [row["pixel_difference"] for size in sizes for row in size["runs"]
              if row["jacobian"] == DOUBLE and "pixel_difference" in row]
    add("final projections of all implementations are the same (Figure 14)",
        pixels and f"they differ by up to {max(pixels):.2g} pixels (double)"
        or None, pixels and max(pixels) < 0.01)
    counts = [(a["num_pcg_iterations"], b["num_pcg_iterations"])
              for size in sizes for c in CONFIGURATIONS
              for a, b in [(whole_run(size, NAIVE, DOUBLE, c),
                            whole_run(size, PAPER, DOUBLE, c))] if a and b
              and "time" not in (a["end"], b["end"])]
    same = sum(a == b for a, b in counts)
    add("implementations take different numbers of PCG iterations (506 and "
        "1400)", counts and f"naive and optimised take the same number in "
        f"{same} of {len(counts)} runs in double" or None,
        counts and same < len(counts))
    deficient = [size["rank_deficient"] for size in sizes
                 if "rank_deficient" in size]
    add("points have no singular blocks, some cameras of real data have "
        "(Table 1)", deficient and f"{sum(d['points'] for d in deficient)} "
        f"points and {sum(d['cameras'] for d in deficient)} cameras of the ten "
        "synthetic problems" or None,
        "not repeated: the data are synthetic")
    runs = [row for size in sizes for row in size["runs"] if "eta" in row]
    runs = [row for row in runs if row["end"] != "time"]
    ended = [row for row in runs if row["end"] == "function tolerance"]
    lower = [row for row in runs if row["final_cost"] < row["initial_cost"]]
    add("all data sets converge", runs and f"of {len(runs)} runs that time has "
        f"not ended the cost falls in {len(lower)}; {len(ended)} end by the "
        "tolerance, the others at 50 iterations" or None,
        len(ended) == len(runs) or ("in part" if ended else False))

    # Growth.
    for variant, says in (
            (PAPER, "1 x 1: the speed-up over the sequential one grows "
             "monotonically with the size (optimised)"),
            (NAIVE, "the same, more slowly (naive)")):
        found = [(size["num_cameras"], value) for size in sizes
                 for value in [one_by_one_ratio(host, variant)(size)]
                 if value is not None]
        values = [value for _, value in found]
        add(says, values and "with Schur complement and implicit W "
            + ", ".join(f"{value:.0f}" for value in values) + " with "
            + ", ".join(f"{cameras:,}" for cameras, _ in found) + " cameras"
            or None,
            len(values) > 1
            and all(a < b for a, b in zip(values, values[1:])))
    slopes = {}
    for variant in (NAIVE, PAPER):
        points = [(size["num_observations"], run["total_seconds"])
                  for size in sizes
                  for run in [one_by_one(size, variant, DOUBLE, schur)] if run]
        if len(points) > 2:
            slopes[variant] = fit_line(*zip(*points))
    add("1 x 1 grows linearly with the projections, the naive one's slope is "
        "3 times the optimised one's (Figure 20)",
        f"{slopes[NAIVE][0] / slopes[PAPER][0]:.2f} times "
        f"({1e9 * slopes[NAIVE][0]:.2f} and {1e9 * slopes[PAPER][0]:.2f} ns "
        f"per projection, R2 {slopes[NAIVE][2]:.3f} and {slopes[PAPER][2]:.3f})"
        if len(slopes) == 2 else None,
        None if len(slopes) < 2 else
        ("linear: " + ("yes" if min(fit[2] for fit in slopes.values()) > 0.97
                       else "no"))
        + "; 3 times: " + ("yes" if slopes[NAIVE][0] / slopes[PAPER][0] >= 2.5
                           else "no"))
    index = largest.get("index")
    add("index arrays and prefix sums belong into the data files, since making "
        "them takes longer than reading them",
        index and f"one build takes {1e3 * index['one_build_seconds']:.1f} ms "
        "on the device at the largest size, two and the order of the points "
        f"{1e3 * index['seconds']:.1f}; the arrays are {1e-6 * 12 * n:.0f} MB "
        f"at least, so reading them would have to reach "
        f"{1e-9 * 12 * n / index['seconds']:.0f} GB/s" or None,
        index and "no: store nothing that the device makes faster")
    return rows


def fit_line(xs, ys):
    """Least squares y = a x + b, and R^2."""
    n = len(xs)
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    offset = mean_y - slope * mean_x
    left = sum((y - slope * x - offset) ** 2 for x, y in zip(xs, ys))
    total = sum((y - mean_y) ** 2 for y in ys)
    return slope, offset, 1 - left / total
