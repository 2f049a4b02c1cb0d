#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Solves a BAL problem with several solvers, each from the same start in a
separate process of bundle_adjuster, and shows how fast each reaches the best
cost.

  compare_solvers.py --input=FILE --num_iterations=50 --dry_run
  compare_solvers.py --input=FILE --num_iterations=50 --repetitions=3 \\
      --json=RUNS.json --page=PAGE.html

All other flags are those of bundle_adjuster and apply to each solver.
docs/programs.md describes the file of --json.

Exit codes:
  0  a solver solved the problem and all costs are right
  1  a flag is unknown or has a value that is not accepted
  2  the input, or the runs of --json, could not be read
  3  all solves failed, or a cost does not match its parameters
  4  an output could not be written
  5  SIGINT, SIGTERM or SIGHUP ended a run, which does not count
"""
import argparse
import ctypes
import json
import math
import os
import shutil
import signal
import stat
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True  # The folder may be /usr/bin.
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from solve_page import (  # noqa: E402: found by the line above
    bar_plot, data, escape, figures, is_finite, line_plot, number_text, page,
    progress, short_number, table, write_file)

USABLE, USAGE, INPUT, FAILED, OUTPUT, INTERRUPTED = range(6)
FORMAT = "ceres_ext.comparison.1"
ENDINGS = ("solved", "failed", "crashed", "out_of_time")
EXCESSES = (0.01, 0.001, 0.0001)  # above the best cost, as parts of it
SMALLEST_EXCESS = 1e-6  # Beyond six digits costs are the same.
# A process is given twice the time of its solve, ten times what reading took,
# for reading, building and checking, and what it takes to start.
START_SECONDS = 5.0


def ext(device, jacobian, precision, linear_solver="iterative_schur"):
    # If a device is requested, no other machine may replace it.
    return {"solver": "ceres_ext", "linear_solver": linear_solver,
            "preconditioner": "schur_jacobi", "device": device,
            "jacobian": jacobian, "precision": precision, "fallback": "refuse"}


def stock(linear_solver, preconditioner, **more):
    return {"solver": "ceres", "linear_solver": linear_solver,
            "preconditioner": preconditioner, **more}


SOLVERS = {
    "ceres:sparse_schur": stock("sparse_schur", "jacobi"),
    "ceres:dense_schur": stock("dense_schur", "jacobi"),
    "ceres:iterative_schur": stock("iterative_schur", "schur_jacobi"),
    "ceres:iterative_schur+jacobi": stock("iterative_schur", "jacobi"),
    "ceres:cgnr": stock("cgnr", "jacobi"),
    "ceres:dense_schur+cuda": stock(
        "dense_schur", "jacobi", dense_linear_algebra_library="cuda"),
    "ceres:cgnr+cuda": stock(
        "cgnr", "jacobi", sparse_linear_algebra_library="cuda_sparse"),
    "ceres_ext:host": ext("host", "stored", "double"),
    "ceres_ext:cuda": ext("cuda", "stored", "double"),
    "ceres_ext:cuda+recomputed": ext("cuda", "recomputed", "double"),
    "ceres_ext:cuda+mixed": ext("cuda", "stored", "mixed"),
    "ceres_ext:cuda+dense_schur": ext("cuda", "auto", "double", "dense_schur"),
}
FLAGS_OF_SOLVERS = ("solver", "linear_solver", "preconditioner", "device",
                    "jacobian", "precision", "fallback")
FLAGS_OF_ONE_SOLVE = ("output", "covariance", "covariance_scale", "report_json",
                      "report_problem", "initial_ply", "final_ply", "batch")

# Two cameras that look at twelve points, seen nearly where they are.
TINY = "2 12 24\n" + "".join(
    f"{camera} {3 * x + y} "
    f"{500 * (x - 1.5 + camera) / (9 + (x * y) % 3) + 0.1 * ((x + y) % 2):.9g} "
    f"{500 * (y - 1) / (9 + (x * y) % 3):.9g}\n"
    for camera in range(2) for x in range(4) for y in range(3)) + "".join(
        f"0\n0\n0\n{camera}\n0\n0\n500\n0\n0\n" for camera in range(2)) + "".join(
            f"{x - 1.5}\n{y - 1}\n{-(9 + (x * y) % 3)}\n"
            for x in range(4) for y in range(3))


class Failure(Exception):

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Interruption:
    """The first SIGINT, SIGTERM or SIGHUP ends the current run, the second one
    this program. Signals that are ignored stay ignored."""

    def __init__(self):
        self.came = False
        self.child = None
        self.numbers = [
            number for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) != signal.SIG_IGN]
        for number in self.numbers:
            signal.signal(number, self.note)

    def note(self, number, _):
        self.came = True
        for other in self.numbers:
            signal.signal(other, signal.SIG_DFL)
        if self.child:
            self.child.kill()
        os.write(2, (f"compare_solvers.py: {signal.Signals(number).name}: the "
                     "comparison stops and keeps the runs that have ended; a "
                     "second signal kills\n").encode())


class Outcome:
    """How a process ended, its report, and the end of its standard error."""

    def __init__(self, program, flags, max_seconds=None, interruption=None,
                 started=lambda process: None):
        parent, libc = os.getpid(), ctypes.CDLL(None)

        def prepare():
            # Dies with this program, however that ends.
            libc.prctl(1, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
        read_end, write_end = os.pipe()
        start = time.monotonic()
        with tempfile.TemporaryFile() as errors, open(read_end, "rb") as pipe:
            # A session of its own: signals to this group do not reach it.
            child = subprocess.Popen(
                [program, *flags, f"--report_json=/dev/fd/{write_end}"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=errors, pass_fds=[write_end], start_new_session=True,
                preexec_fn=prepare)
            os.close(write_end)
            text = []
            reader = threading.Thread(target=lambda: text.append(pipe.read()))
            reader.start()
            if interruption:
                interruption.child = child
                if interruption.came:
                    child.kill()
            started(child.pid)
            self.out_of_time = False
            try:
                child.wait(max_seconds)
            except subprocess.TimeoutExpired:
                self.out_of_time = True
                child.kill()
                child.wait()
            if interruption:
                interruption.child = None
            self.seconds = time.monotonic() - start
            reader.join()
            self.status = child.returncode
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
            self.errors = errors.read().decode(errors="replace").splitlines()
        try:
            self.report = json.loads(text[0])
        except ValueError:
            self.report = None

    def message(self):
        """The last line that bundle_adjuster wrote, else the last of all."""
        lines = [line for line in self.errors if line]
        own = [line.partition(": ")[2] for line in lines
               if line.startswith("bundle_adjuster: ")]
        return (own or lines or [f"ended with exit code {self.status}"])[-1]


def flag_texts(flags):
    return [f"--{name}={value}" for name, value in flags.items()]


class Runner:

    def __init__(self, options, rest, flags, read_seconds, interruption):
        self.program, self.interruption = options.program, interruption
        self.max_seconds = (2 * options.max_seconds + 10 * read_seconds
                            + START_SECONDS)
        limit = min(float(flags["max_solver_time"]), options.max_seconds)
        self.flags = [*rest, f"--input={options.input}",
                      f"--max_solver_time={limit!r}"]

    def run(self, solver, repetition, num_iterations):
        """None if a signal ended it."""
        outcome = Outcome(
            self.program, [*self.flags, *flag_texts(SOLVERS[solver]),
                           f"--num_iterations={num_iterations}"],
            self.max_seconds, self.interruption,
            lambda process: print(f" (process {process}) ", end="", flush=True))
        if self.interruption.came:
            return None
        ending, message = "failed", ""
        if outcome.out_of_time:
            ending = "out_of_time"
            message = f"killed after {short_number(self.max_seconds)} s"
        elif outcome.status < 0:
            ending = "crashed"
            message = ("ended by a signal: "
                       + signal.strsignal(-outcome.status)
                       + (", as where memory runs out"
                          if outcome.status == -signal.SIGKILL else ""))
        elif outcome.status != 0 or outcome.report is None:
            message = outcome.message()
        elif (solver.startswith("ceres_ext:")
              and outcome.report["ceres_ext"]["path"] != "FULL"):
            # A solver must not count for the result of another.
            message = ("Ceres alone solved it: "
                       + outcome.report["ceres_ext"]["path_reason"])
        else:
            ending = "solved"
        return {"solver": solver, "repetition": repetition, "ending": ending,
                "message": message, "process_time_in_seconds": outcome.seconds,
                "report": outcome.report}


def number_at(run, *names):
    """NaN if the report has none."""
    value = run["report"]
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return math.nan if not isinstance(value, (int, float)) else float(value)


def cost_fault(run):
    """One line if a cost that the solver reports is further from the recomputed
    one than its tolerance, or one of them is missing; otherwise empty."""
    for name in ("initial_cost", "final_cost"):
        reported = number_at(run, "summary", name)
        recomputed = number_at(run, "recomputed_costs", name)
        tolerance = number_at(run, "recomputed_costs", name + "_tolerance")
        if not abs(reported - recomputed) <= tolerance:  # True for NaN too.
            return (f"expected {name} {number_text(recomputed)} (recomputed) "
                    f"within {number_text(tolerance)}, found "
                    f"{number_text(reported)}")
    return ""


def spread(values):
    """Lowest, median and highest; NaN if one of the repetitions has none."""
    if not values or not all(map(math.isfinite, values)):
        return (math.nan,) * 3
    return min(values), statistics.median(values), max(values)


def seconds_to(run, cost):
    return next((iteration["cumulative_time_in_seconds"]
                 for iteration in progress(run["report"])
                 if is_finite(iteration["cost"]) and iteration["cost"] <= cost),
                math.nan)


def evaluate_solver(solver, runs, best_cost):
    faults, notes, solved = [], [], []
    for run in runs:
        name = f"{solver}, run {run['repetition'] + 1}: "
        if run["ending"] != "solved":
            faults.append(name + run["message"])
            continue
        solved.append(run)
        fault = cost_fault(run)
        if fault:
            faults.append(name + fault)
        message = run["report"]["summary"].get("message", "")
        if message.startswith("Maximum solver time reached"):
            notes.append(name + message)
    first = solved[0]["report"] if solved else {"summary": {}, "iterations": []}
    is_iterative = first["summary"].get("linear_solver_type_used") in (
        "ITERATIVE_SCHUR", "CGNR")
    of_ext = first.get("ceres_ext", {})
    return {
        "solver": solver, "num_runs": len(runs), "num_solved": len(solved),
        "seconds_to": [spread([seconds_to(run, (1 + excess) * best_cost)
                               for run in solved]) for excess in EXCESSES],
        "total": spread([number_at(run, "summary", "total_time_in_seconds")
                         for run in solved]),
        "read_and_build": spread([
            number_at(run, "problem", "read_time_in_seconds")
            + number_at(run, "problem", "build_time_in_seconds")
            for run in solved]),
        "final_cost": number_at({"report": first}, "summary", "final_cost"),
        "iterations": len(first["iterations"]) - 1.0 if solved else math.nan,
        "linear_iterations": float(sum(
            iteration["linear_solver_iterations"]
            for iteration in first["iterations"])) if is_iterative
        else math.nan,
        "device": of_ext.get("device", ""), "method": of_ext.get("method", ""),
        "faults": faults, "notes": notes}


def evaluate(runs, solvers):
    """The best cost of the runs that were solved and whose costs are right, NaN
    if there is none, and the results of the solvers that have runs."""
    best_cost = min((number_at(run, "summary", "final_cost") for run in runs
                     if run["ending"] == "solved" and not cost_fault(run)),
                    default=math.nan)
    results = []
    for solver in solvers:
        of_solver = [run for run in runs if run["solver"] == solver]
        if of_solver:
            results.append(evaluate_solver(solver, of_solver, best_cost))
    return best_cost, results


def comparison_table(best_cost, results):
    """For a terminal."""
    def digits(value, num_digits=4):
        return f"{value:.{num_digits}g}" if math.isfinite(value) else "-"

    def count(value):
        return str(int(value)) if math.isfinite(value) else "-"
    rows = [["solver", "solved", "to 1 %", "to 0.1 %", "to 0.01 %",
             "final cost", "iterations", "linear", "total (s)", "from", "to",
             "read, build"]]
    for result in results:
        lowest, median, highest = result["total"]
        rows.append([
            result["solver"], f"{result['num_solved']}/{result['num_runs']}",
            *(digits(seconds[1]) for seconds in result["seconds_to"]),
            digits(result["final_cost"], 10), count(result["iterations"]),
            count(result["linear_iterations"]), digits(median), digits(lowest),
            digits(highest), digits(result["read_and_build"][1])])
    widths = [max(map(len, column)) for column in zip(*rows)]
    best = number_text(best_cost) if math.isfinite(best_cost) else "not known"
    lines = ["  ".join([row[0].ljust(widths[0]),
                        *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    lines.append(f"Seconds are medians. The best cost is {best}.")
    for result in results:
        lines += result["faults"] + result["notes"]
    return "".join(line + "\n" for line in lines)


def comparison_page(comparison, best_cost, results, left_out):
    def cell(seconds, name):
        text = data(seconds[1], name)
        if seconds[0] < seconds[2]:
            text += (f"<br/>{short_number(seconds[0], 4)}–"
                     f"{short_number(seconds[2], 4)}")
        return text
    rows, notes, bars = [], [], []
    for result in results:
        name = result["solver"]
        rows.append([
            escape(name), f"{result['num_solved']} of {result['num_runs']}",
            *(cell(seconds, f"{name}.{100 * excess:g}") for seconds, excess
              in zip(result["seconds_to"], EXCESSES)),
            data(result["final_cost"], f"{name}.final_cost", 9),
            data(result["iterations"], f"{name}.iterations"),
            data(result["linear_iterations"], f"{name}.linear_iterations"),
            cell(result["total"], f"{name}.total"),
            data(result["read_and_build"][1], f"{name}.read_and_build")])
    for kind, name in (('<span class="bad">fault</span>', "faults"),
                       ("ended", "notes")):
        notes += [[kind, escape(line)] for result in results
                  for line in result[name]]
    notes += [["left out", escape(f"{solver}: {why}")]
              for solver, why in left_out]
    notes += [[escape(result["solver"]),
               escape(f"{result['device']}; {result['method']}")]
              for result in results if result["method"]]

    # The first run of each solver that has one.
    series = []
    for color, result in enumerate(results):
        run = next((run for run in comparison["runs"]
                    if run["solver"] == result["solver"]
                    and run["ending"] == "solved"), None)
        if run:
            series.append((result["solver"], color, [
                (iteration["cumulative_time_in_seconds"],
                 max(iteration["cost"] / best_cost - 1, SMALLEST_EXCESS))
                for iteration in progress(run["report"])
                if is_finite(iteration["cost"]) and best_cost > 0]))
    plots = ""
    for title, is_log in (("Cost against time", False),
                          ("Cost against time, logarithmic", True)):
        plots += line_plot(title, ("seconds since the solve began", is_log),
                           ("cost / best cost - 1", True), series, True)
    for title, seconds in (
            *((f"Time to {100 * excess:g} % above the best cost",
               [result["seconds_to"][k] for result in results])
              for k, excess in enumerate(EXCESSES)),
            ("Total time of the solve",
             [result["total"] for result in results])):
        bars = [(result["solver"], median,
                 f"{short_number(median, 4)} s" if math.isfinite(median)
                 else "not reached", color)
                for color, (result, (_, median, _)) in enumerate(
                    zip(results, seconds))]
        plots += bar_plot(title, bars)
    about = [["Best cost", data(best_cost, "best_cost", 9)]] + [
        [escape(section), escape(", ".join(
            f"{name} {value}" for name, value in fields.items()))]
        for section, fields in comparison["identity"].items()]
    return page(
        "Comparison on", comparison["input"],
        table(["solver", "solved", "s to 1 %", "s to 0.1 %", "s to 0.01 %",
               "final cost", "iter.", "linear", "total s", "read, build s"],
              rows) + (table([], notes) if notes else "")
        + "<p>Seconds count from the call that solves, so the set-up and the "
        "start of a device are in them and reading and building are not; they "
        "are medians over the runs, with their range. Seconds to 1 % are those "
        "until the first iteration whose cost is at most 1 % above the best "
        "final cost of all. The plots are of the first run that was solved; "
        "what is less than a millionth above the best is shown there.</p>\n"
        + figures(plots) + "<h2>What all have in common</h2>\n"
        + table([], about))


def processor_name():
    """Empty where the system does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file
                         if line.startswith("model name")), "")
    except OSError:
        return ""


def read_runs(path, identity):
    """The runs of the file at path, which has to be of this identity. A missing
    file has none."""
    kind = "a comparison of bundle_adjuster"

    def fail(expected, found):
        raise Failure(INPUT, f"{path}: expected {expected}, found {found}")
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            fail("a regular file", "another kind")
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return []
    except OSError as error:
        fail("a readable file", error.strerror)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        fail(kind, "another kind of file")
    try:
        for section, fields in identity.items():
            for name, value in fields.items():
                other = found["identity"][section].get(name)
                if other != value:
                    fail(f"a comparison with {section}.{name} "
                         + json.dumps(value), json.dumps(other))
        for run in found["runs"]:
            if run["solver"] not in SOLVERS or run["ending"] not in ENDINGS:
                fail(kind, f"{run['solver']!r}, {run['ending']!r}")
            for field in (int(run["repetition"]), run["message"] + "",
                          float(run["process_time_in_seconds"]), run["report"]):
                del field
            if run["ending"] == "solved":
                run["report"]["summary"].get("message", "").startswith("")
                for iteration in run["report"]["iterations"]:
                    is_finite(iteration["cost"])
                    is_finite(iteration["cumulative_time_in_seconds"] + 0)
                    bool(iteration["step_is_successful"])
                    float(iteration["linear_solver_iterations"])
            elif run["report"] is not None and not isinstance(run["report"],
                                                              dict):
                fail(kind, "another kind of report")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        fail(kind, repr(error))
    return found["runs"]


def check_output(name, path):
    folder = os.path.dirname(os.path.realpath(path))
    why = ("no such folder" if not os.path.isdir(folder)
           else "a folder" if os.path.isdir(path)
           else "Permission denied" if not os.access(
               path if os.path.exists(path) else folder, os.W_OK) else "")
    if why:
        raise Failure(OUTPUT, f"{path}: expected a file that can be written, "
                              f"found {why}")


def write(path, text):
    try:
        write_file(path, text)
    except OSError as error:
        raise Failure(OUTPUT, f"{path}: expected a file that can be written, "
                              f"found {error.strerror}") from error


def parse(arguments):
    class Parser(argparse.ArgumentParser):

        def error(self, message):
            raise Failure(USAGE, message)
    parser = Parser(description=__doc__, allow_abbrev=False,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                          "bundle_adjuster")
    parser.add_argument(
        "--program", default=beside if os.path.exists(beside)
        else shutil.which("bundle_adjuster"),
        help="bundle_adjuster; default: beside this script, else in PATH")
    parser.add_argument("--input", default="", help="problem in BAL format")
    parser.add_argument("--num_iterations", type=int, default=5)
    parser.add_argument(
        "--solvers", default="automatic",
        help="names, separated by commas: automatic (all that can run here), "
        + ", ".join(SOLVERS))
    parser.add_argument("--repetitions", type=int, default=1,
                        help="runs of each solver")
    parser.add_argument(
        "--max_seconds", type=float, default=600.0,
        help="seconds after which a solve ends with its iteration; a solve "
        "that does not end is killed")
    parser.add_argument(
        "--dry_run", action="store_true",
        help="list the solvers that would run, and estimate their time from "
        "one iteration each")
    parser.add_argument(
        "--json", default="", help="write all runs to this file, after each of "
        "them, and skip those that it has already")
    parser.add_argument("--page", default="",
                        help="write a page with plots to this HTML file")
    options, rest = parser.parse_known_args(arguments)
    given = {argument.lstrip("-").partition("=")[0] for argument in rest
             if argument.startswith("-")}
    for flag in FLAGS_OF_SOLVERS:
        if flag in given:
            raise Failure(USAGE, f"--{flag}: expected none for a comparison, "
                                 "whose solvers have their own, found one")
    for flag in FLAGS_OF_ONE_SOLVE:
        if flag in given:
            raise Failure(USAGE, f"--{flag}: expected none for a comparison, "
                                 "which has many solves, found one")
    if not options.program or not os.access(options.program, os.X_OK):
        raise Failure(USAGE, "--program: expected bundle_adjuster, found "
                             f"{options.program or 'none'}")
    if not options.input:
        raise Failure(USAGE, "--input: expected the name of a BAL file, found "
                             "none; see --help")
    if options.repetitions < 1:
        raise Failure(USAGE, "--repetitions: expected a number >= 1, found "
                             f"{options.repetitions}")
    if not 0 < options.max_seconds < math.inf:
        raise Failure(USAGE, "--max_seconds: expected a number > 0, found "
                             f"{number_text(options.max_seconds)}")
    if os.path.exists(options.input) and not (
            os.path.isfile(options.input) or os.path.isdir(options.input)):
        raise Failure(USAGE, "--input: expected a file that can be read many "
                             f"times, found {options.input}")
    wanted = set(options.solvers.split(","))
    unknown = sorted(wanted - set(SOLVERS) - {"automatic"})
    if unknown or ("automatic" in wanted and len(wanted) > 1):
        raise Failure(
            USAGE, "--solvers: expected some of "
            + ", ".join(["automatic", *SOLVERS])
            + f", found '{unknown[0] if unknown else 'automatic'}'")
    options.solvers = [solver for solver in SOLVERS
                       if solver in wanted or wanted == {"automatic"}]
    files = {}
    for flag in ("input", "json", "page"):
        path = getattr(options, flag)
        if path:
            same = files.setdefault(os.path.realpath(path), flag)
            if same != flag:
                raise Failure(USAGE, f"--{flag}: expected another file than "
                                     f"that of --{same}, found the same, "
                                     f"{path}")
            if flag != "input":
                check_output(flag, path)
    return options, rest


def identify(options, rest):
    """A run without iterations tells the identity of all runs and the seconds
    of reading."""
    outcome = Outcome(options.program, [
        *rest, f"--input={options.input}", "--num_iterations=0",
        "--device=host", "--report_problem"])
    if outcome.report is None:
        raise Failure(outcome.status if outcome.status > 0 else FAILED,
                      outcome.message())
    problem, details = (outcome.report[name]
                        for name in ("problem", "problem_report"))
    flags = {name: value for name, value in outcome.report["flags"].items()
             if name not in ("input", *FLAGS_OF_SOLVERS, *FLAGS_OF_ONE_SOLVE)}
    flags["num_iterations"] = str(options.num_iterations)
    flags["max_seconds"] = number_text(options.max_seconds)
    names = ("num_cameras", "num_points", "num_observations")
    sums = ("observations_crc32", "parameters_crc32")
    return {"problem": {**{name: problem[name] for name in names},
                        **{name: details[name] for name in sums}},
            "flags": flags,
            "machine": {"processor": processor_name(),
                        "num_processors": os.cpu_count()}
            }, problem["read_time_in_seconds"]


def why_left_out(solver, options, rest, identity):
    """The reason why a solver cannot run here, as far as a tiny problem shows
    it; else empty."""
    flags = identity["flags"]
    of_solver = SOLVERS[solver]
    if (of_solver.get("jacobian") == "recomputed"
            and flags["cost_function"] != "analytic"):
        return "a recomputed Jacobian needs --cost_function=analytic"
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(TINY)
        file.flush()
        outcome = Outcome(options.program, [
            *rest, *flag_texts(of_solver), f"--input={file.name}",
            "--num_iterations=1", "--rotation_sigma=0", "--translation_sigma=0",
            "--point_sigma=0"], options.max_seconds + 60)
    if outcome.status == USAGE or ("cuda" in solver and outcome.status != 0):
        return outcome.message().removeprefix("the solve failed: ")
    # The Schur complement, factorised in place.
    size = 8e-9 * (identity["problem"]["num_cameras"] * (
        10 if flags["use_quaternions"] == "true" else 9)) ** 2
    memory = 1e-9 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if (of_solver["solver"] == "ceres"
            and of_solver["linear_solver"] == "dense_schur" and size > memory):
        return (f"its Schur complement takes {int(size)} GB, the machine has "
                f"{int(memory)}")
    return ""


def estimate(options, runner, solvers, existing):
    """A short run of each estimates the time of a run: that of its process
    without the iteration, and so many iterations, which end when the solve has
    to."""
    total, num_runs = 0.0, 0
    for solver in solvers:
        num_left = sum((solver, k) not in existing
                       for k in range(options.repetitions))
        num_runs += num_left
        print(f"{solver}: {num_left} of {options.repetitions} to run",
              end="" if num_left else "\n", flush=True)
        if num_left == 0:
            continue
        run = runner.run(solver, 0, min(1, options.num_iterations))
        if run is None:
            print()
            return INTERRUPTED
        if run["ending"] != "solved":
            print(run["message"])
            total += num_left * run["process_time_in_seconds"]
            continue
        iterations = run["report"]["iterations"]
        iteration = (iterations[1]["iteration_time_in_seconds"]
                     if len(iterations) > 1 else 0.0)
        solve = number_at(run, "summary", "total_time_in_seconds")
        whole = min(solve + (options.num_iterations - 1) * iteration,
                    max(solve, options.max_seconds))
        seconds = run["process_time_in_seconds"] - solve + whole
        total += num_left * seconds
        print(f"about {short_number(round(seconds, 2))} s each", flush=True)
    print(f"{num_runs} runs: about {short_number(math.ceil(total))} s, at most "
          f"{short_number(math.ceil(num_runs * runner.max_seconds))} s")
    return USABLE


def compare(arguments):
    options, rest = parse(arguments)
    identity, read_seconds = identify(options, rest)
    runs = read_runs(options.json, identity) if options.json else []
    comparison = {"format": FORMAT, "input": options.input,
                  "identity": identity, "runs": runs}
    left_out = []
    for solver in options.solvers:
        why = why_left_out(solver, options, rest, identity)
        if why:
            print(f"{solver}: left out: {why}", flush=True)
            left_out.append((solver, why))
    solvers = [solver for solver in options.solvers
               if solver not in dict(left_out)]
    interruption = Interruption()
    runner = Runner(options, rest, identity["flags"], read_seconds,
                    interruption)
    existing = {(run["solver"], run["repetition"]) for run in runs}
    if options.dry_run:
        return estimate(options, runner, solvers, existing)

    # One of each before the next of any, so that a machine that slows down
    # slows all.
    was_interrupted = False
    for repetition, solver in ((k, solver) for k in range(options.repetitions)
                               for solver in solvers):
        if was_interrupted := interruption.came:
            break
        print(f"{solver}, run {repetition + 1} of {options.repetitions}",
              end="", flush=True)
        if (solver, repetition) in existing:
            print(f": in {options.json}")
            continue
        run = runner.run(solver, repetition, options.num_iterations)
        if run is None:
            was_interrupted = True
            print("interrupted")
            break
        print(f"cost {short_number(number_at(run, 'summary', 'final_cost'))} "
              "in " + short_number(number_at(run, "summary",
                                             "total_time_in_seconds")) + " s"
              if run["ending"] == "solved" else run["message"], flush=True)
        runs.append(run)
        if options.json:
            write(options.json, json.dumps(comparison, indent=1) + "\n")

    best_cost, results = evaluate(runs, SOLVERS)
    print("\n" + comparison_table(best_cost, results), end="", flush=True)
    if options.page:
        write(options.page, comparison_page(comparison, best_cost, results,
                                            left_out))
    if was_interrupted:
        return INTERRUPTED
    for run in runs:
        if run["ending"] == "solved" and cost_fault(run):
            raise Failure(FAILED, f"{run['solver']}, run "
                                  f"{run['repetition'] + 1}: {cost_fault(run)}")
    if not math.isfinite(best_cost):
        raise Failure(FAILED, "expected a solver that solves the problem, "
                              "found none")
    return USABLE


def main():
    # Names of files may have any bytes.
    sys.stdout.reconfigure(errors="replace")
    sys.stderr.reconfigure(errors="replace")
    try:
        return compare(sys.argv[1:])
    except Failure as failure:
        sys.stdout.flush()
        print(f"compare_solvers.py: {failure}", file=sys.stderr)
        return failure.code
    except BrokenPipeError:
        return OUTPUT
    except KeyboardInterrupt:  # before the first run
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
