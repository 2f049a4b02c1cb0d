#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Makes a page with plots of a solve by bundle_adjuster or colmap_adjuster.

  solve_page.py REPORT.json PAGE.html
  solve_page.py PAGE.html PROGRAM [FLAGS...]

The first form reads a file of --report_json; with --report_problem the page
shows residuals, structure and positions too. The second form runs PROGRAM with
FLAGS and makes the page of its report. Its exit status is that of PROGRAM, or 4
if the page could not be written.

The page is one well-formed XML file that loads nothing else, for light and dark
screens.
"""
import html
import json
import math
import os
import re
import subprocess
import sys
import tempfile

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1c1c1e;--soft:#5f6368;
--line:#dadce0;--c0:#1967b3;--c1:#c85a00;--c2:#14804a;--c3:#b0308c;--c4:#6b4fc0;
--c5:#80660a;--c6:#0b7f92;--c7:#b3261e}
@media(prefers-color-scheme:dark){:root{--back:#17181a;--text:#e8eaed;
--soft:#a4a9b0;--line:#3c4043;--c0:#6cb0f5;--c1:#ff9d4d;--c2:#5fcf93;--c3:#f07fd0;
--c4:#b3a0ff;--c5:#d9bf55;--c6:#5ccfe0;--c7:#ff8a80}}
body{margin:0 auto;max-width:1080px;padding:16px 24px 40px;background:var(--back);
color:var(--text);font:14px/1.45 system-ui,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:21px;overflow-wrap:anywhere}
h2{font-size:17px;margin:28px 0 8px}
h3{font-size:14px;margin:0 0 4px}
p{max-width:75ch}
table{border-collapse:collapse;margin:6px 0;font-size:13px;
font-variant-numeric:tabular-nums}
th,td{padding:2px 12px 2px 0;text-align:left;vertical-align:top;
border-bottom:1px solid var(--line)}
td:not(:last-child){white-space:nowrap}
td:last-child{min-width:5em;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:600}
.wide{overflow-x:auto}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));
gap:22px 26px}
figure{margin:0}
.figures>figure:only-child{max-width:720px}
figcaption{color:var(--soft);font-size:13px}
.key{display:inline-block;margin-right:14px;white-space:nowrap}
.key svg{width:26px;height:10px;vertical-align:middle;margin-right:5px}
.bad{color:var(--c7);font-weight:600}
svg{display:block;width:100%;height:auto}
svg.in{display:inline-block}
svg text{font:12px system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:var(--text)}
svg .label{fill:var(--soft)}
svg .grid{stroke:var(--line);fill:none}
svg .frame{stroke:var(--soft);fill:none}
svg .series{fill:none;stroke-width:1.7;stroke-linejoin:round}
svg .area{stroke-width:1.4;fill-opacity:.3}
svg .dots{fill:none;stroke-linecap:round}
svg .dashed{stroke-dasharray:5 3}
"""

# In units of a drawing, in which text is 12 high and at most 7.5 wide.
WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 72, 18, 10, 50
CHARACTER = 7.5
NUM_COLORS = 8
MAX_TICKS = 7
MAX_LINE_POINTS = 600  # More are not visible at this width.
MAX_MARKED_POINTS = 60


def is_finite(value):
    return value is not None and math.isfinite(value)


def escape(text):
    """Characters that XML does not allow become U+FFFD."""
    text = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]",
                  "\ufffd", str(text))
    return html.escape(text, quote=False).replace('"', "&quot;")


def number_text(value):
    """The shortest text with the bits of the number."""
    return repr(value).removesuffix(".0")


def short_number(value, digits=6):
    """For readers ("1.25e6"); a dash if the value is not finite."""
    if not is_finite(value):
        return "–"
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.{digits}g}")


def data(value, name="", digits=6):
    """A short number; the attribute value has all of its bits."""
    return ("<data" + (f' id="{escape(name)}"' if name else "") + ' value="'
            + (number_text(value) if is_finite(value) else "") + '">'
            + short_number(value, digits) + "</data>")


def table(header, rows):
    """Cells are HTML."""
    def cells(tag, row):
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>"
                                for cell in row) + "</tr>\n"
    return ('<div class="wide"><table>\n'
            + (cells("th", header) if header else "")
            + "".join(cells("td", row) for row in rows) + "</table></div>\n")


def page(kind, subject, body):
    title = escape(f"{kind} {subject}")
    return ("<!DOCTYPE html>\n"
            '<html xmlns="http://www.w3.org/1999/xhtml" lang="en">\n'
            '<head><meta charset="utf-8"/>\n<meta name="viewport" '
            'content="width=device-width,initial-scale=1"/>\n'
            f"<title>{title}</title>\n<style>{STYLE}</style></head>\n"
            f"<body>\n<h1>{title}</h1>\n{body}</body></html>\n")


def figures(text):
    return f'<div class="figures">\n{text}</div>\n'


def figure(title, height, drawing, caption):
    return (f"<figure><h3>{escape(title)}</h3>\n"
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {place(height)}" role="img">\n{drawing}'
            f"</svg>\n<figcaption>{caption}</figcaption></figure>\n")


def place(value):
    """A place in a drawing, to a tenth."""
    return number_text(round(value * 10.0) / 10.0)


def svg_text(x, y, anchor, text, more=""):
    return (f'<text x="{place(x)}" y="{place(y)}" text-anchor="{anchor}"'
            f"{more}>{escape(text)}</text>\n")


def color_of(attribute, color):
    return f' {attribute}="var(--c{color % NUM_COLORS})"'


def dashed(color):
    return "" if color < NUM_COLORS else " dashed"


def keys(names):
    """The names of several series, a list of (color, name)."""
    return "".join(
        '<span class="key"><svg class="in" viewBox="0 0 26 10"><path '
        f'class="series{dashed(color)}"{color_of("stroke", color)} '
        f'd="M0 5h26"/></svg>{escape(name)}</span> '
        for color, name in names if len(names) > 1)


def round_step(step):
    """1, 2 or 5 times a power of ten, not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    # A step that is round already may be off by rounding.
    return next((factor * power for factor in (1, 2, 5)
                 if factor * power >= step * (1 - 1e-9)), 10 * power)


class Scale:
    """From values to places of a drawing between two ends. is_round widens the
    range to round numbers."""

    def __init__(self, values, is_log, is_round, begin, end):
        low, high = (min(values), max(values)) if values else (1.0, 10.0)
        self.is_log, self.begin, self.end = is_log, begin, end
        self.ticks = []
        (self.set_log if is_log else self.set_linear)(low, high, is_round)

    def __call__(self, value):
        t = (((math.log10(value) if self.is_log else value) - self.low)
             / (self.high - self.low))
        return self.begin + (self.end - self.begin) * min(max(t, 0.0), 1.0)

    def set_linear(self, low, high, is_round):
        if low == high:
            margin = 1.0 if low == 0 else 0.5 * abs(low)
            low, high = low - margin, high + margin
        step = round_step((high - low) / (MAX_TICKS - 1))
        if is_round:
            low = step * math.floor(low / step * (1 + 1e-12))
            high = step * math.ceil(high / step * (1 - 1e-12))
        self.low, self.high = low, high
        margin = 1e-9 * step
        first = math.ceil((low - margin) / step)
        self.ticks = [(first + i) * step + 0.0 for i in range(2 * MAX_TICKS)
                      if (first + i) * step <= high + margin]

    def set_log(self, low, high, is_round):
        self.low, self.high = math.log10(low), math.log10(high)
        # Far below a decade: the ticks of a linear axis.
        if self.high - self.low < 0.5:
            linear = Scale([low, high], False, is_round, 0, 1)
            self.ticks = [tick for tick in linear.ticks if tick > 0]
            if low == high or is_round:
                self.low = math.log10(min(low, self.ticks[0]))
                self.high = math.log10(max(high, self.ticks[-1]))
            return
        if is_round and self.high - self.low > 2:
            self.low = math.floor(self.low + 1e-9)
            self.high = math.ceil(self.high - 1e-9)
        decades = self.high - self.low
        step = max(1, math.ceil(decades / MAX_TICKS))
        exponent = math.floor(self.low / step) * step
        while exponent <= self.high:
            # Up to two decades have 2 and 5 too.
            for factor in (1, 2, 5) if decades <= 2 else (1,):
                if (self.low - 1e-9 <= exponent + math.log10(factor)
                        <= self.high + 1e-9):
                    self.ticks.append(factor * 10.0 ** exponent)
            exponent += step


def shows(axis, value):
    """True if an axis, (label, is_log), can show the value."""
    return value is not None and (
        sys.float_info.min if axis[1] else -1e300) <= value <= 1e300


def axes(x, y, x_scale, y_scale, height):
    """Frame, grid, numbers and labels."""
    def line(x1, y1, x2, y2):
        return (f'<path class="grid" d="M{place(x1)} {place(y1)}L{place(x2)} '
                f'{place(y2)}"/>\n')
    bottom = height - BOTTOM
    svg, last = "", -WIDTH
    for tick in x_scale.ticks:
        at, text = x_scale(tick), short_number(tick)
        half = 0.5 * CHARACTER * len(text)
        svg += line(at, TOP, at, bottom)
        # A number that would hide another one is omitted.
        if at - half > last:
            svg += svg_text(at, bottom + 20, "middle", text)
            last = at + half
    for tick in y_scale.ticks:
        at = y_scale(tick)
        svg += line(LEFT, at, WIDTH - RIGHT, at)
        svg += svg_text(LEFT - 6, at + 4, "end", short_number(tick))
    middle = 0.5 * (TOP + bottom)
    return (svg + f'<rect class="frame" x="{LEFT}" y="{TOP}" '
            f'width="{WIDTH - LEFT - RIGHT}" height="{place(bottom - TOP)}"/>\n'
            + svg_text(0.5 * (LEFT + WIDTH - RIGHT), height - 9, "middle", x[0],
                       ' class="label"')
            + svg_text(13, middle, "middle", y[0],
                       f' class="label" transform="rotate(-90 13 '
                       f'{place(middle)})"'))


def line_plot(title, x, y, series, is_stepped=False):
    """series: a list of (name, color, [(x, y)]). Points that an axis cannot show
    are omitted. is_stepped: a value stays until the next point."""
    shown = [[(a, b) for a, b in points if shows(x, a) and shows(y, b)]
             for _, _, points in series]
    x_scale = Scale([a for points in shown for a, _ in points], x[1], False,
                    LEFT, WIDTH - RIGHT)
    y_scale = Scale([b for points in shown for _, b in points], y[1], True,
                    HEIGHT - BOTTOM, TOP)
    svg = axes(x, y, x_scale, y_scale, HEIGHT)
    for (_, color, _), points in zip(series, shown):
        if not points:
            continue
        chosen = points[::1 + len(points) // MAX_LINE_POINTS]
        if chosen[-1] is not points[-1]:
            chosen.append(points[-1])
        line = marks = ""
        for a, b in chosen:
            px, py = place(x_scale(a)), place(y_scale(b))
            line += (f"M{px} {py}" if not line else
                     f"H{px}V{py}" if is_stepped else f"L{px} {py}")
            marks += f"M{px} {py}h0"
        stroke = color_of("stroke", color)
        svg += f'<path class="series{dashed(color)}"{stroke} d="{line}"/>\n'
        if len(points) <= MAX_MARKED_POINTS:
            svg += (f'<path class="dots" stroke-width="4.5"{stroke} '
                    f'd="{marks}"/>\n')
    return figure(title, HEIGHT, svg,
                  keys([(color, name) for name, color, _ in series]))


def histogram_plot(title, x, y, edges, histograms):
    """histograms: a list of (name, color, counts between the edges)."""
    x_scale = Scale(edges, x[1], False, LEFT, WIDTH - RIGHT)
    y_scale = Scale([0.0, *(float(count) for _, _, counts in histograms
                            for count in counts)], y[1], True,
                    HEIGHT - BOTTOM, TOP)
    svg = axes(x, y, x_scale, y_scale, HEIGHT)
    zero = place(y_scale(0.0))
    for _, color, counts in histograms:
        area = "".join(f"V{place(y_scale(count))}H{place(x_scale(edge))}"
                       for count, edge in zip(counts, edges[1:]))
        svg += (f'<path class="area"{color_of("stroke", color)}'
                f'{color_of("fill", color)} '
                f'd="M{place(x_scale(edges[0]))} {zero}{area}V{zero}Z"/>\n')
    return figure(title, HEIGHT, svg,
                  keys([(color, name) for name, color, _ in histograms]))


def bar_plot(title, bars, caption=""):
    """bars: a list of (label, value, text behind the bar, color)."""
    left = CHARACTER * max((len(bar[0]) for bar in bars), default=0) + 8
    texts = CHARACTER * max((len(bar[2]) for bar in bars), default=0)
    largest = max((bar[1] for bar in bars if is_finite(bar[1])), default=0)
    width = max(40, WIDTH - RIGHT - left - texts - 6)
    svg, y = "", 4
    for label, value, text, color in bars:
        length = (width * max(0, value) / largest
                  if is_finite(value) and largest > 0 else 0)
        svg += (svg_text(left - 6, y + 11, "end", label)
                + f'<rect{color_of("fill", color)} x="{place(left)}" y="{y}" '
                f'width="{place(length)}" height="13"/>\n'
                + svg_text(left + length + 6, y + 11, "start", text))
        y += 20
    return figure(title, y + 2, svg, caption)


def cloud_plot(title, x_label, y_label, x_range, y_range, clouds, caption):
    """One scale on both axes, which show these ranges. clouds: a list of (name,
    color, size of a dot, [(x, y)])."""
    # The wider range fills the width; the other one gets the height that it
    # takes, or the available one.
    inner = WIDTH - LEFT - RIGHT
    x_size, y_size = (max(high - low, sys.float_info.min)
                      for low, high in (x_range, y_range))
    inner_height = min(max(inner * y_size / x_size, 200.0), float(inner))
    unit = max(x_size / inner, y_size / inner_height)

    def widened(ends, size):
        margin = 0.5 * (size - (ends[1] - ends[0]))
        return [ends[0] - margin, ends[1] + margin]
    height = TOP + inner_height + BOTTOM
    x_scale = Scale(widened(x_range, unit * inner), False, False, LEFT,
                    WIDTH - RIGHT)
    y_scale = Scale(widened(y_range, unit * inner_height), False, False,
                    height - BOTTOM, TOP)
    svg = axes((x_label, False), (y_label, False), x_scale, y_scale, height)
    for _, color, size, points in clouds:
        dots = "".join(f"M{place(x_scale(a))} {place(y_scale(b))}h0"
                       for a, b in points)
        if dots:
            svg += (f'<path class="dots" stroke-width="{size}"'
                    f'{color_of("stroke", color)} d="{dots}"/>\n')
    return figure(title, height, svg, keys(
        [(color, name) for name, color, _, _ in clouds]) + caption)


def summary_table(report):
    problem, summary, ext = (report[name] for name in
                             ("problem", "summary", "ceres_ext"))
    rows = []

    def text(name, value):
        if value:
            rows.append([name, escape(value)])

    def number(name, section, field, unit=""):
        rows.append([escape(name), data(report[section].get(field),
                                        f"{section}.{field}", 9) + unit])
    is_stock = ext["path"] == "CERES"
    text("Input", problem["input"])
    for name in problem:
        if name != "input" and not name.endswith("_in_seconds"):
            number(name, "problem", name)
    text("Termination", f"{summary['termination_type']}: {summary['message']}")
    text("Solved by",
         "Ceres alone" if is_stock else "Ceres Ext under Ceres")
    text("Reason", ext["path_reason"])
    text("Device", ext["device"])
    text("Method", ext["method"])
    text("Linear solver", f"{summary['linear_solver_type_used']}, "
         f"preconditioner {summary['preconditioner_type_used']}")
    number("Threads", "summary", "num_threads_used")
    number("Initial cost", "summary", "initial_cost")
    number("Final cost", "summary", "final_cost")
    for name in report.get("recomputed_costs", {}):
        number(f"{name}, recomputed", "recomputed_costs", name)
    number("Steps taken", "summary", "num_successful_steps")
    number("Steps rejected", "summary", "num_unsuccessful_steps")
    if not is_stock:
        number("PCG iterations", "ceres_ext", "num_pcg_iterations")
        number("Memory", "ceres_ext", "memory_bytes", " bytes")
    number("Total time", "summary", "total_time_in_seconds", " s")
    number("Reading the input", "problem", "read_time_in_seconds", " s")
    number("Building the problem", "problem", "build_time_in_seconds", " s")
    return table([], rows)


def progress(report):
    """Iterations at whose end the solve has a new state: the first, and those
    whose step was taken."""
    return [iteration for i, iteration in enumerate(report["iterations"])
            if i == 0 or iteration["step_is_successful"]]


def convergence(report):
    def points(iterations, x, y):
        return [(iteration[x], iteration[y]) for iteration in iterations]
    iterations, states = report["iterations"], progress(report)
    return (
        line_plot("Cost against time", ("seconds since the solve began", False),
                  ("cost", True), [("cost", 0, points(
                      states, "cumulative_time_in_seconds", "cost"))], True)
        + line_plot("Cost against iterations", ("iteration", False),
                    ("cost", True),
                    [("cost", 0, points(states, "iteration", "cost"))], True)
        + line_plot("Iterations of the linear solver per step",
                    ("iteration", False), ("iterations", False),
                    [("iterations", 1, points(iterations[1:], "iteration",
                                              "linear_solver_iterations"))])
        + line_plot("Trust-region radius", ("iteration", False),
                    ("radius", True),
                    [("radius", 2, points(iterations, "iteration",
                                          "trust_region_radius"))]))


def stages(report):
    summary, ext = report["summary"], report["ceres_ext"]
    total = summary["total_time_in_seconds"]
    bars = []

    def add(name, seconds, color):
        if is_finite(seconds) and seconds > 0:
            share = round(1000 * seconds / total) / 10 if total > 0 else 0
            bars.append((name, seconds,
                         f"{short_number(round(seconds, 4))} s, "
                         f"{short_number(share)} %", color))
    for name, field in (("total", "total"), ("preprocessor", "preprocessor"),
                        ("residuals", "residual_evaluation"),
                        ("Jacobian", "jacobian_evaluation"),
                        ("linear solver", "linear_solver"),
                        ("inner iterations", "inner_iteration"),
                        ("postprocessor", "postprocessor")):
        add(name, summary.get(field + "_time_in_seconds"), 0)
    caption = "Shares are of the total."
    if ext["path"] != "CERES":
        is_exact = summary["linear_solver_type_used"] in ("DENSE_SCHUR",
                                                          "SPARSE_SCHUR")
        for name, field in (
                ("set-up", "setup"), ("upload of rows", "import"),
                ("normal blocks", "normal_blocks"),
                *((("Schur complement", "schur"),
                   ("factorization", "factorization"))
                  if is_exact else (("PCG", "pcg"),)),
                ("back-substitution", "back_substitution")):
            add(name, ext[field + "_time_in_seconds"], 1)
        caption += " Stages in the second colour are parts of the others."
    return bar_plot("Time of the stages", bars, caption)


def survey_section(survey):
    most = 200  # rows of each group
    of_groups, of_items = [], []
    for name, rms in survey["rms"].items():
        role, kind = name.split("_")
        of_groups.append([f"{role} {kind}", rms["count"],
                          *(data(rms[axis]) for axis in ("x", "y", "z",
                                                         "xyz"))])
        items = [item for item in survey[kind] if item["role"] == role
                 and all(map(is_finite, item["difference"]))]
        if len(items) > most:
            items = sorted(items, key=lambda item: -math.hypot(
                *item["difference"]))[:most]
        for item in items:
            of_items.append([
                escape(item["id"]), f"{role} {kind}",
                *map(data, item["difference"]),
                *(map(data, item["standard_deviations"])
                  if "standard_deviations" in item else "–––"),
                item.get("num_images", "–"),
                data(item["rms_in_pixels"]) if "rms_in_pixels" in item
                else "–"])
    return (f"<h2>Survey</h2>\n<p>{escape(survey['georeference'])}</p>\n"
            + table(["RMS, adjusted minus given", "number", "X", "Y", "Z",
                     "3D"], of_groups)
            + table(["id", "of", "X", "Y", "Z", "std. dev. X", "Y", "Z",
                     "images", "RMS in pixels"], of_items))


def covariance_section(covariance):
    rows = []
    for name, of_array in covariance["standard_deviations"].items():
        worst = ", ".join(
            f"{block['id']} ({short_number(block['largest'], 3)})"
            for block in of_array["worst"])
        rows.append([escape(name), of_array["num_finite"],
                     data(of_array["median"]) if worst else "–", worst or "–"])
    return ("<h2>Standard deviations</h2>\n"
            + table(["blocks of", "number", "median", "largest of"], rows))


def residual_sections(problem):
    states = [name for name in ("before", "after") if name in problem]
    rows = [[name, data(problem[name]["rms"], f"{name}.rms"),
             *(data(problem[name][field]) for field in (
                 "median", "percentile_90", "percentile_99", "largest",
                 "num_not_finite"))] for name in states]
    # Bins of a quarter of a decade from 1e-4 on, without the empty ones at both
    # ends.
    used = [i for i in range(len(problem["before"]["histogram"]))
            if any(problem[name]["histogram"][i] for name in states)]
    begin, end = ((used[0], used[-1] + 1) if used else
                  (0, len(problem["before"]["histogram"])))
    plot = histogram_plot(
        "Residuals", ("|r| in pixels", True), ("observations", False),
        [10.0 ** (i / 4 - 4) for i in range(begin, end + 1)],
        [(name, 1 if name == "before" else 0,
          problem[name]["histogram"][begin:end]) for name in states])
    worst = "".join(
        f"<div><h3>Worst {kind}s</h3>"
        + table([kind, "observations", "RMS in pixels"],
                [[block["id"], block["num_observations"], data(block["rms"])]
                 for block in problem[kind + "s"]["worst"]]) + "</div>\n"
        for kind in ("camera", "point"))
    return ("<h2>Residuals</h2>\n"
            + table(["|r| in pixels", "RMS", "median", "90 %", "99 %",
                     "largest", "not finite"], rows)
            + figures(plot) + figures(worst))


def count_plot(title, blocks, num_observations):
    counts, first = blocks["num_blocks"], blocks["first_num_observations"]
    used = [i for i, count in enumerate(counts) if count]
    bars = []
    for i in range(used[0], used[-1] + 1):
        last = first[i + 1] - 1 if i + 1 < len(first) else ""
        label = (str(first[i]) if last == first[i] else f"{first[i]}-{last}")
        bars.append((label, counts[i], str(counts[i]), 2))
    return bar_plot(title, bars,
                    f"Mean {short_number(num_observations / sum(counts))}, "
                    f"most {blocks['most_observations']}.")


def view_from_above(report):
    def positions(name):
        values = report["problem_report"][name]
        return list(zip(values[::3], values[1::3], values[2::3]))

    def robust_range(places, axis):
        """From the 2nd to the 98th percentile of a coordinate."""
        values = sorted(position[axis] for position in places) or [0.0, 1.0]
        return (values[int(0.02 * (len(values) - 1))],
                values[int(0.98 * (len(values) - 1))])
    points, cameras = positions("point_positions"), positions(
        "camera_positions")
    ranges = []
    for axis in range(3):
        of_points = robust_range(points, axis)
        of_cameras = robust_range(cameras, axis)
        low = min(of_points[0], of_cameras[0])
        high = max(of_points[1], of_cameras[1])
        margin = 0.05 * (high - low)
        ranges.append((low - margin, high + margin))
    # The two widest; of x, y and z the first is to the right.
    right, up = sorted(sorted(range(3), key=lambda axis: ranges[axis][0]
                              - ranges[axis][1])[:2])

    def inside(places):
        return [(position[right], position[up]) for position in places
                if ranges[right][0] <= position[right] <= ranges[right][1]
                and ranges[up][0] <= position[up] <= ranges[up][1]]
    of_points, of_cameras = inside(points), inside(cameras)
    outside = len(points) + len(cameras) - len(of_points) - len(of_cameras)
    return cloud_plot(
        "Cameras and points along the two widest axes", "xyz"[right], "xyz"[up],
        ranges[right], ranges[up],
        [("points", 0, 1.3, of_points), ("cameras", 1, 3, of_cameras)],
        f"Shown: {len(of_points)} of {report['problem']['num_points']} points, "
        f"{len(of_cameras)} of {report['problem']['num_cameras']} cameras; "
        f"{outside} lie outside, where the outermost hundredths are.")


def solve_page(report):
    body = (summary_table(report) + "<h2>Convergence</h2>\n"
            + figures(convergence(report) + stages(report)))
    if "survey" in report:
        body += survey_section(report["survey"])
    if "covariance" in report:
        body += covariance_section(report["covariance"])
    if "problem_report" in report:
        problem = report["problem_report"]
        num_observations = report["problem"]["num_observations"]
        body += (residual_sections(problem) + "<h2>Structure</h2>\n"
                 + figures(count_plot("Points by number of observations",
                                      problem["points"], num_observations)
                           + count_plot("Cameras by number of observations",
                                        problem["cameras"], num_observations))
                 + "<h2>From above</h2>\n" + figures(view_from_above(report)))
    return page("Solve of", report["problem"]["input"], body)


def write_file(path, text):
    """A file whole or not at all; devices, pipes and the like directly."""
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    folder, name = os.path.split(path)
    number, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name[:200]}.",
                                         suffix=".tmp")
    try:
        with open(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            os.chmod(temporary, os.stat(path).st_mode & 0o7777)
        else:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main():
    arguments = sys.argv[1:]
    if len(arguments) < 2 or arguments[0].startswith("-"):
        print(__doc__.strip())
        return 0 if arguments and arguments[0] in ("-h", "--help") else 1
    if arguments[0].endswith(".json"):
        return write_page(*arguments[:2])
    target, program, *flags = arguments
    with tempfile.TemporaryDirectory() as folder:
        found = os.path.join(folder, "report.json")
        for flag in flags:
            if re.match("--?report_json=.", flag):
                found = flag.partition("=")[2]
        flags.append(f"--report_json={found}")
        if os.path.basename(program).startswith("bundle_adjuster"):
            flags.append("--report_problem")
        code = subprocess.run([program, *flags], check=False).returncode
        # No report: the program has said why.
        return (write_page(found, target) if os.path.exists(found)
                else 0) or code


def write_page(source, target):
    try:
        with open(source, encoding="utf-8") as file:
            text = solve_page(json.load(file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"solve_page.py: {source}: expected a report of bundle_adjuster "
              f"or colmap_adjuster, found {error!r}", file=sys.stderr)
        return 2
    try:
        write_file(target, text)
    except OSError as error:
        print(f"solve_page.py: {target}: expected a file that can be written, "
              f"found {error.strerror}", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
