#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""solve_page.py and compare_solvers.py as a user runs them: pages are whole,
their numbers are those of the reports, and a browser shows them well; a
comparison survives whatever happens to its solvers."""
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parent
SCRIPTS = TESTS.parent.parent / "examples" / "bal"
PROGRAM = os.environ.get("BUNDLE_ADJUSTER", "")
GENERATE = os.environ.get("BAL_GENERATE", "")
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPTS))
import compare_solvers as cs  # noqa: E402: found by the line above
import solve_page as sp  # noqa: E402: the same

# Those that every machine has.
HOST_SOLVERS = {
    "ceres:sparse_schur": ["--solver=ceres", "--linear_solver=sparse_schur"],
    "ceres:dense_schur": ["--solver=ceres", "--linear_solver=dense_schur"],
    "ceres:iterative_schur": ["--solver=ceres",
                              "--linear_solver=iterative_schur"],
    "ceres:iterative_schur+jacobi": [
        "--solver=ceres", "--linear_solver=iterative_schur",
        "--preconditioner=jacobi"],
    "ceres:cgnr": ["--solver=ceres", "--linear_solver=cgnr"],
    "ceres_ext:host": ["--device=host", "--linear_solver=iterative_schur"]}
ALL_HOST = "--solvers=" + ",".join(HOST_SOLVERS)
# A point at the optical center: the cost is not defined at the start.
CENTER = "1 1 1\n0 0 1 2\n0\n0\n0\n0\n0\n0\n1\n0\n0\n0\n0\n0\n"


def run(*command):
    return subprocess.run([str(word) for word in command], text=True,
                          capture_output=True, check=False,
                          stdin=subprocess.DEVNULL)


def wait_until(predicate):
    end = time.monotonic() + 120
    while not predicate():
        if time.monotonic() > end:
            raise AssertionError("waited for two minutes")
        time.sleep(0.001)


class ProgramTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.input = self.folder / "input.txt"
        self.json = self.folder / "comparison.json"
        self.page = self.folder / "page.html"
        self.generate(8, 200, 900)

    def generate(self, cameras, points, observations):
        self.assertEqual(run(
            GENERATE, f"--num_cameras={cameras}", f"--num_points={points}",
            f"--num_observations={observations}",
            f"--output={self.input}").returncode, 0)

    def read_page(self, path=None):
        result = run(sys.executable, TESTS / "read_page.py", path or self.page)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def render(self, path=None):
        """Skips the test where there is no browser."""
        result = run(sys.executable, TESTS / "render_page.py",
                     path or self.page)
        if result.returncode == 77:
            self.skipTest(result.stdout.strip())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class SolvePageTest(ProgramTest):

    def solve(self, *flags, page=None):
        """The page of a solve by the one command."""
        return run(sys.executable, SCRIPTS / "solve_page.py",
                   page or self.page, PROGRAM, *flags)

    def test_holds_the_numbers_of_the_report(self):
        html = self.folder / 'a <b> & "c".html'
        report_path = self.folder / "report.json"
        for flags in ([], ["--solver=ceres"],
                      ["--use_quaternions", "--robustify"]):
            with self.subTest(flags=flags):
                result = self.solve("--num_iterations=10",
                                    f"--input={self.input}",
                                    f"--report_json={report_path}", *flags,
                                    page=html)
                self.assertEqual(result.returncode, 0, result.stderr)
                page = self.read_page(html)
                report = json.loads(report_path.read_text())
                self.assertGreaterEqual(len(page["numbers"]), 15)
                for name, number in page["numbers"].items():
                    section, field = name.split(".")
                    if section not in ("before", "after"):
                        self.assertEqual(number, report[section][field], name)
                self.assertEqual(page["title"], f"Solve of {self.input}")
                self.assertEqual(page["external"], [])
                self.assertEqual(len(page["figures"]), 9)
                # The recomputed costs are those of the solver, to their
                # tolerance, which is far below what a step changes.
                costs = report["recomputed_costs"]
                for cost in ("initial_cost", "final_cost"):
                    value = report["summary"][cost]
                    tolerance = costs[cost + "_tolerance"]
                    self.assertLessEqual(abs(costs[cost] - value), tolerance)
                    self.assertLess(tolerance, 1e-8 * value)
                    self.assertGreater(tolerance, 0)
                # RMS is of |r|, so without a loss 2 cost = n RMS^2.
                if "--robustify" not in flags:
                    rms = page["numbers"]["after.rms"]
                    cost = costs["final_cost"]
                    self.assertAlmostEqual(450 * rms * rms, cost,
                                           delta=1e-12 * cost)
                # The page of the report alone is the same.
                again = self.folder / "again.html"
                self.assertEqual(run(SCRIPTS / "solve_page.py", report_path,
                                     again).returncode, 0)
                self.assertEqual(again.read_text(), html.read_text())

    def test_escapes_what_is_shown(self):
        """Names with markup, invalid UTF-8, control characters."""
        name = os.fsencode(self.folder) + b"/<b>&amp;'\"\x01\xff\xc3\xa9]]>.txt"
        shutil.copy(self.input, name)
        result = subprocess.run(
            [sys.executable, SCRIPTS / "solve_page.py", self.page, PROGRAM,
             b"--input=" + name], capture_output=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("<b>&amp;'\"\ufffd\ufffd\u00e9]]>",
                      self.read_page()["title"])

    def test_escape(self):
        self.assertEqual(sp.escape("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;'\n")
        for good in "\x80\u07ff\u0800\ud7ff\ue000\ufffd\U00010000\U0010ffff":
            self.assertEqual(sp.escape(good), good)
        for bad in "\0\x1f\ud800\udcff\ufffe\uffff":
            self.assertEqual(sp.escape(bad), "\ufffd")

    def test_numbers(self):
        for value, text in ((0.0, "0"), (-1.25, "-1.25"),
                            (1234567.0, "1.23457e6"), (1e-7, "1e-7"),
                            (1e100, "1e100"), (math.nan, "–"), (None, "–")):
            self.assertEqual(sp.short_number(value), text)
        self.assertEqual(sp.data(0.1, "a.b"),
                         '<data id="a.b" value="0.1">0.1</data>')
        self.assertEqual(
            sp.data(1 / 3),
            '<data value="0.3333333333333333">0.333333</data>')
        self.assertEqual(sp.data(math.nan), '<data value="">–</data>')

    def test_plots_of_any_range(self):
        """The ticks are round, few and inside."""
        nan = math.nan
        lines = [
            [], [(0, 0)], [(1, 5)], [(1, nan), (nan, 1)],
            [(0, 1e300), (1, 1e-300)],
            [(-1e300, -1e300), (1e300, 1e300), (1e301, 1), (1, -1e308)],
            [(0, 1), (1, 1 + 1e-12)], [(0, 1), (1, 1 + 2 ** -52)],
            [(0, 41000), (1, 41000.5)], [(1e-9, -3), (2e5, 7)],
            [(1, 0), (2, -1), (3, 99)], [(1, 2)] * 100000]
        body = ""
        for points in lines:
            points = [(float(x), float(y)) for x, y in points]
            for is_log in (False, True):
                plot = sp.line_plot("plot", ("x", is_log), ("y", is_log),
                                    [("line", 3, points)], True)
                self.assertLess(len(plot), 20000)
                body += plot
        body += sp.bar_plot("bars", [])
        body += sp.bar_plot("bars", [("a", 0.0, "none", 0),
                                     ("b", nan, "nan", 0)])
        body += sp.histogram_plot("none", ("x", False), ("y", False),
                                  [0.0, 1.0], [("a", 0, [0.0])])
        body += sp.cloud_plot("point", "x", "y", (1, 1), (2, 2), [], "")
        self.page.write_text(sp.page("Plots", "", body))
        page = self.read_page()
        self.assertEqual(len(page["figures"]), 2 * len(lines) + 4)
        for text in page["texts"]:
            self.assertLessEqual(len(text), 18 if "000000" in text else 10,
                                 text)

    def test_stays_small(self):
        """A page with a million points would be too large to download: here
        60,000."""
        self.generate(6000, 60000, 200000)
        result = self.solve("--num_iterations=1",
                            "--max_linear_solver_iterations=1",
                            f"--input={self.input}")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertLess(self.page.stat().st_size, 500000)
        # The worst points come first, and the largest |r| is not below theirs.
        rows = self.read_page()["rows"]
        first = rows.index(["point", "observations", "RMS in pixels"]) + 1
        worst = [float(row[2]) for row in rows[first:first + 10]]
        self.assertEqual(worst, sorted(worst, reverse=True))
        self.assertEqual(len(worst), 10)

    def test_failed_solves(self):
        self.input.write_text(CENTER)
        self.assertEqual(self.solve(f"--input={self.input}").returncode, 3)
        page = self.read_page()
        self.assertEqual(len(page["figures"]), 9)
        self.assertNotIn("recomputed_costs.final_cost", page["numbers"])

    def test_errors(self):
        self.assertEqual(self.solve("--input=x").returncode, 2)
        self.assertFalse(self.page.exists())
        self.assertEqual(run(SCRIPTS / "solve_page.py").returncode, 1)
        for text in ("", "[]", "{}", '{"problem": 1}'):
            self.json.write_text(text)
            result = run(SCRIPTS / "solve_page.py", self.json, self.page)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected a report of bundle_adjuster",
                          result.stderr)
        nowhere = self.folder / "nowhere" / "page.html"
        for path in (nowhere, "/dev/full"):
            result = self.solve(f"--input={self.input}", page=path)
            self.assertEqual(result.returncode, 4)
            self.assertIn(f"solve_page.py: {path}: expected a file that can be "
                          "written, found No s", result.stderr)

    def test_a_browser_shows_it(self):
        self.assertEqual(self.solve("--num_iterations=30",
                                    f"--input={self.input}").returncode, 0)
        self.render()


class CompareTest(ProgramTest):

    def command(self, *flags):
        return [sys.executable, str(SCRIPTS / "compare_solvers.py"),
                f"--program={PROGRAM}", f"--input={self.input}", *flags]

    def compare(self, *flags):
        return run(*self.command(f"--json={self.json}", *flags))

    def runs(self):
        return json.loads(self.json.read_text())["runs"]

    def expect_fault(self, flags, code, error, command=None):
        result = run(*(command or self.command(f"--json={self.json}", *flags)))
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr, f"compare_solvers.py: {error}\n")

    def generate_slow(self):
        """Runs of a second or more, so that a signal can come before they
        end."""
        self.generate(60, 24000, 300000)

    def start(self, *flags):
        out = open(self.folder / "out", "w", encoding="utf-8")
        err = open(self.folder / "err", "w", encoding="utf-8")
        self.addCleanup(out.close)
        self.addCleanup(err.close)
        child = subprocess.Popen(
            self.command(f"--json={self.json}", *flags), stdout=out, stderr=err,
            stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(lambda: child.poll() is None and child.kill())
        return child

    def out(self):
        return (self.folder / "out").read_text()

    def wait_for_process(self, solver):
        """The process that solves for `solver`, once it runs."""
        pattern = re.escape(f"{solver}, run 1 of 1 (process ") + r"(\d+)\) "
        wait_until(lambda: re.search(pattern, self.out()))
        return int(re.search(pattern, self.out()).group(1))

    @staticmethod
    def has_ended(process):
        try:
            state = pathlib.Path(f"/proc/{process}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        # Not yet waited for by the process that inherits it.
        return ") Z" in state

    def test_runs_are_those_of_single_solves(self):
        """Each solver gets where bundle_adjuster gets by itself with its flags,
        to the bit, from the same start with the same noise."""
        flags = ["--num_iterations=6", "--num_threads=1", "--point_sigma=0.01",
                 "--robustify"]
        result = self.compare(*flags, ALL_HOST, "--repetitions=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        runs, n = self.runs(), len(HOST_SOLVERS)
        self.assertEqual(len(runs), 2 * n)
        report_path = self.folder / "report.json"
        for i, made in enumerate(runs):
            # All of one repetition, then all of the next.
            name = list(HOST_SOLVERS)[i % n]
            self.assertEqual(made["solver"], name)
            self.assertEqual(made["repetition"], i // n)
            self.assertEqual(made["ending"], "solved")
            self.assertEqual(made["message"], "")
            self.assertIn(f"{name}, run 2 of 2 (process ", result.stdout)
            report = made["report"]
            if i >= n:
                self.assertEqual(report["summary"]["final_cost"],
                                 runs[i - n]["report"]["summary"]["final_cost"])
                continue
            self.assertEqual(run(
                PROGRAM, f"--input={self.input}",
                f"--report_json={report_path}", *flags,
                *HOST_SOLVERS[name]).returncode, 0)
            single = json.loads(report_path.read_text())
            self.assertEqual(report["recomputed_costs"],
                             single["recomputed_costs"])
            for field in ("linear_solver_type_used",
                          "preconditioner_type_used"):
                self.assertEqual(report["summary"][field],
                                 single["summary"][field])
            for field in ("cost", "linear_solver_iterations"):
                self.assertEqual([it[field] for it in report["iterations"]],
                                 [it[field] for it in single["iterations"]])
            self.assertEqual(
                report["recomputed_costs"]["initial_cost"],
                runs[0]["report"]["recomputed_costs"]["initial_cost"])
        self.assertIn("The best cost is ", result.stdout)

    def test_says_what_is_left_out(self):
        result = self.compare(
            "--dry_run", "--cost_function=autodiff", "--num_iterations=3",
            "--sparse_linear_algebra_library=accelerate_sparse")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(self.json.exists())
        for text in ("ceres_ext:cuda+recomputed: left out: a recomputed "
                     "Jacobian needs --cost_function=analytic\n",
                     "ceres:sparse_schur: left out: Can't use SPARSE_SCHUR ",
                     "sparse_linear_algebra_library_type = ACCELERATE_SPARSE",
                     "ceres_ext:host: 1 of 1 to run", " s each\n",
                     " s, at most "):
            self.assertIn(text, result.stdout)

    def test_goes_on_where_it_stopped(self):
        """Existing runs count in a dry run, and are not run again; solvers and
        repetitions may be added."""
        self.assertEqual(
            self.compare("--solvers=ceres_ext:host").returncode, 0)
        first = self.runs()
        self.assertEqual(len(first), 1)
        flags = ["--solvers=ceres_ext:host,ceres:dense_schur",
                 "--repetitions=2"]
        out = self.compare(*flags, "--dry_run").stdout
        for text in ("ceres_ext:host: 1 of 2 to run",
                     "ceres:dense_schur: 2 of 2 to run", "\n3 runs: about "):
            self.assertIn(text, out)
        self.assertEqual(self.runs(), first)
        result = self.compare(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"ceres_ext:host, run 1 of 2: in {self.json}\n",
                      result.stdout)
        second = self.runs()
        self.assertEqual(len(second), 4)
        self.assertEqual(second[0], first[0])
        result = self.compare(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("(process ", result.stdout)
        self.assertEqual(self.runs(), second)

    def test_nothing_runs_on(self):
        """A solve of minutes ends with the program, however it is killed."""
        self.generate_slow()
        for number in (signal.SIGINT, signal.SIGKILL):
            child = self.start("--solvers=ceres_ext:host",
                               "--num_iterations=1000000", "--eta=1e-10")
            process = self.wait_for_process("ceres_ext:host")
            self.assertGreater(process, 1)
            child.send_signal(number)
            child.wait()
            wait_until(lambda process=process: self.has_ended(process))

    def test_interrupted_and_killed(self):
        """SIGINT ends the current run, SIGKILL the program without a word: the
        finished runs are kept, and the next call continues."""
        self.generate_slow()
        flags = ["--solvers=ceres:dense_schur,ceres_ext:host",
                 "--num_iterations=3"]
        for number in (signal.SIGINT, signal.SIGKILL):
            child = self.start(*flags)
            self.wait_for_process("ceres_ext:host")
            child.send_signal(number)
            code = child.wait()
            if number == signal.SIGINT:
                self.assertEqual(code, 5)
                self.assertIn("SIGINT: the comparison stops",
                              (self.folder / "err").read_text())
                self.assertIn("interrupted\n", self.out())
                self.assertIn("The best cost is ", self.out())
            else:
                self.assertEqual(code, -signal.SIGKILL)
            self.assertEqual([made["solver"] for made in self.runs()],
                             ["ceres:dense_schur"])
        result = self.compare(*flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("ceres:dense_schur, run 1 of 1: in ", result.stdout)
        self.assertEqual(len(self.runs()), 2)

    def test_crashes_and_delays_are_results(self):
        """One solver crashes, as memory is used up or a pointer is wrong, and
        one does not end; the others are not touched."""
        self.generate_slow()
        child = self.start("--solvers=ceres:dense_schur,ceres:iterative_schur,"
                           "ceres:cgnr,ceres_ext:host", "--num_iterations=2",
                           "--max_seconds=1")
        for solver, number in (("ceres:dense_schur", signal.SIGABRT),
                               ("ceres:iterative_schur", signal.SIGKILL),
                               ("ceres:cgnr", signal.SIGSTOP)):
            os.kill(self.wait_for_process(solver), number)
        self.assertEqual(child.wait(), 0, (self.folder / "err").read_text())
        runs = self.runs()
        self.assertEqual([made["ending"] for made in runs],
                         ["crashed", "crashed", "out_of_time", "solved"])
        self.assertEqual(runs[0]["message"], "ended by a signal: Aborted")
        self.assertIsNone(runs[0]["report"])
        self.assertEqual(runs[1]["message"], "ended by a signal: Killed, as "
                                             "where memory runs out")
        self.assertTrue(runs[2]["message"].startswith("killed after "))
        self.assertIn("ceres:dense_schur, run 1: ended by", self.out())
        self.assertIn("ceres:cgnr, run 1: killed after ", self.out())

    def test_time_limits_end_solves(self):
        """A solve ends behind its iteration where its time is over."""
        result = self.compare("--num_iterations=1000000", "--max_seconds=1e-9",
                              "--solvers=ceres_ext:host")
        self.assertEqual(result.returncode, 0, result.stderr)
        (made,) = self.runs()
        self.assertTrue(made["report"]["summary"]["message"].startswith(
            "Maximum solver time reached."))
        self.assertIn(
            "\nceres_ext:host, run 1: Maximum solver time reached.",
            result.stdout)

    def test_failures_have_reasons(self):
        two = "--solvers=ceres_ext:host,ceres:dense_schur"
        good = self.input.read_text()
        self.input.write_text(CENTER)
        self.expect_fault([two], 3, "expected a solver that solves the problem, "
                                    "found none")
        for made in self.runs():
            self.assertEqual(made["ending"], "failed")
            self.assertTrue(made["message"].startswith("the solve failed: "))
        # If one has a solution, the others do not matter.
        self.json.unlink()
        self.input.write_text(good)
        result = self.compare("--line_search", two)
        self.assertEqual(result.returncode, 0, result.stderr)
        runs = self.runs()
        self.assertEqual([made["ending"] for made in runs],
                         ["solved", "failed"])
        self.assertTrue(runs[1]["message"].startswith(
            "Ceres alone solved it: minimizer_type LINE_SEARCH has no linear "
            "solver"))

    def test_usage_errors(self):
        self.expect_fault(
            ["--solvers=nobody"], 1,
            "--solvers: expected some of automatic, ceres:sparse_schur, "
            "ceres:dense_schur, ceres:iterative_schur, "
            "ceres:iterative_schur+jacobi, ceres:cgnr, "
            "ceres:dense_schur+cuda, ceres:cgnr+cuda, ceres_ext:host, "
            "ceres_ext:cuda, ceres_ext:cuda+recomputed, "
            "ceres_ext:cuda+mixed, ceres_ext:cuda+dense_schur, found 'nobody'")
        self.expect_fault(["--repetitions=0"], 1,
                          "--repetitions: expected a number >= 1, found 0")
        self.expect_fault(["--max_seconds=-1"], 1,
                          "--max_seconds: expected a number > 0, found -1")
        for flag in ("solver=ceres", "linear_solver=cgnr",
                     "preconditioner=jacobi", "device=host", "jacobian=stored",
                     "precision=double", "fallback=refuse"):
            self.expect_fault(
                [f"--{flag}"], 1, f"--{flag.partition('=')[0]}: expected none "
                "for a comparison, whose solvers have their own, found one")
        for flag in ("output", "report_json", "initial_ply", "final_ply",
                     "covariance", "batch"):
            self.expect_fault(
                [f"--{flag}=x"], 1, f"--{flag}: expected none for a "
                "comparison, which has many solves, found one")
        # Flags of bundle_adjuster are checked before any run.
        result = self.compare("--num_threads=x")
        self.assertEqual(result.returncode, 1)
        self.assertIn("num_threads", result.stderr)
        self.expect_fault(
            [f"--page={self.json}"], 1, "--page: expected another file than "
            f"that of --json, found the same, {self.json}")
        self.expect_fault(
            ["--input=/dev/stdin"], 1, "--input: expected a file that can be "
            "read many times, found /dev/stdin")
        self.expect_fault(
            ["--program=/dev/null"], 1,
            "--program: expected bundle_adjuster, found /dev/null")
        self.assertFalse(self.json.exists())

    def test_input_errors(self):
        self.input.write_text("1 1 1\n0 7 1 2\n")
        self.expect_fault([], 2, f"{self.input}:2: expected the point of "
                                 "observation 1 of 1, an integer from 0 to 0, "
                                 "found '7'")

    def test_refuses_files_of_others(self):
        host = "--solvers=ceres_ext:host"
        self.assertEqual(self.compare(host).returncode, 0)
        good = self.json.read_text()

        def expect_refused(expected, *more):
            before = self.json.read_bytes()
            result = self.compare(host, *more)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertTrue(result.stderr.startswith(
                f"compare_solvers.py: {self.json}: expected {expected}"),
                result.stderr)
            self.assertNotIn("(process", result.stdout)
            self.assertEqual(self.json.read_bytes(), before)
        expect_refused('a comparison with flags.num_iterations "7", found "5"'
                       "\n", "--num_iterations=7")
        expect_refused("a comparison with flags.point_sigma ",
                       "--point_sigma=1")
        expect_refused('a comparison with flags.max_seconds "7", found "600"\n',
                       "--max_seconds=7")
        kind = "a comparison of bundle_adjuster, found "
        for text in ("", "[]", "{}", '{"format": 1}', good[:len(good) // 2],
                     self.input.read_text(), "[" * 100000):
            self.json.write_text(text)
            expect_refused(kind + "another kind of file\n")
        # Whole, but not what it says.
        whole = json.loads(good)
        for field in ("solver", "ending", "report"):
            bad = json.loads(good)
            del bad["runs"][0][field]
            self.json.write_text(json.dumps(bad))
            expect_refused(kind)
            bad["runs"][0][field] = 7
            self.json.write_text(json.dumps(bad))
            expect_refused(kind)
        del whole["runs"][0]["report"]["iterations"][2]["cost"]
        self.json.write_text(json.dumps(whole))
        expect_refused(kind)
        self.json.unlink()
        self.json.symlink_to("/dev/null")
        expect_refused("a regular file, found another kind\n")
        self.json.unlink()
        # Runs of another problem: points moved, and observations.
        self.json.write_text(good)
        text = self.input.read_text()
        last = max(text.rfind(digit) for digit in "0123456789")
        text = (text[:last] + ("2" if text[last] == "1" else "1")
                + text[last + 1:])
        self.input.write_text(text)
        expect_refused("a comparison with problem.parameters_crc32 ")
        digit = text.index(".") + 1
        self.input.write_text(text[:digit] + (
            "2" if text[digit] == "1" else "1") + text[digit + 1:])
        expect_refused("a comparison with problem.observations_crc32 ")

    def test_wrong_costs_are_not_hidden(self):
        """A cost that is not that of the parameters is an error, from any
        solver."""
        flag = "--solvers=ceres_ext:host,ceres:dense_schur"
        self.assertEqual(self.compare(flag).returncode, 0)
        good = self.json.read_text()
        best = self.runs()[0]["report"]["summary"]["final_cost"]
        for cost in ("initial_cost", "final_cost"):
            bad = json.loads(good)
            bad["runs"][1]["report"]["summary"][cost] *= 1 - 1e-6
            self.json.write_text(json.dumps(bad))
            result = self.compare(flag)
            self.assertEqual(result.returncode, 3)
            self.assertTrue(result.stderr.startswith(
                "compare_solvers.py: ceres_ext:host, run 1: expected "
                f"{cost} "), result.stderr)
            self.assertIn(f"ceres_ext:host, run 1: expected {cost}",
                          result.stdout)
            self.assertEqual(float(re.search(r"The best cost is (.*)\.\n",
                                             result.stdout).group(1)), best)

    def test_output_errors(self):
        nowhere = self.folder / "no_such_folder" / "file"
        found = (f"{nowhere}: expected a file that can be written, found no "
                 "such folder")
        self.expect_fault([f"--page={nowhere}"], 4, found)
        self.expect_fault([], 4, found, self.command(f"--json={nowhere}"))
        if os.path.exists("/dev/full"):
            result = self.compare("--solvers=ceres_ext:host",
                                  "--page=/dev/full")
            self.assertEqual(result.returncode, 4)
            self.assertIn("No space left on device", result.stderr)
            self.assertEqual(len(self.runs()), 1)

    def test_page(self):
        result = self.compare(ALL_HOST, "--num_iterations=15",
                              "--repetitions=2", f"--page={self.page}")
        self.assertEqual(result.returncode, 0, result.stderr)
        page = self.read_page()
        self.assertEqual(page["title"], f"Comparison on {self.input}")
        self.assertEqual(page["external"], [])
        self.assertEqual(len(page["figures"]), 6)
        runs, n = self.runs(), len(HOST_SOLVERS)
        numbers = page["numbers"]
        summaries = [made["report"]["summary"] for made in runs]
        self.assertEqual(numbers["best_cost"],
                         min(summary["final_cost"] for summary in summaries))
        for name, first, second in zip(HOST_SOLVERS, summaries, summaries[n:]):
            self.assertEqual(numbers[f"{name}.final_cost"],
                             first["final_cost"])
            self.assertAlmostEqual(
                numbers[f"{name}.total"],
                0.5 * (first["total_time_in_seconds"]
                       + second["total_time_in_seconds"]))
        self.render()

    def test_pages_stay_small(self):
        """Twelve solvers with ten thousand iterations each."""
        solvers, runs = [], []
        progress = [(1 + 0.01 * i, 1e6 / (1 + i)) for i in range(10000)]
        for letter in "abcdefghijkl":
            solvers.append(f"{letter}_solver_with_a_long_name")
            runs.append(made_up_run(solvers[-1], 0, progress))
            progress[-1] = (progress[-1][0], progress[-1][1] * 1.01)
        comparison = {"input": "<input>", "runs": runs,
                      "identity": {"problem": {"text": "<&>"}}}
        text = cs.comparison_page(comparison, *cs.evaluate(runs, solvers),
                                  [("z", "<reason>")])
        self.assertLess(len(text), 500000)
        self.page.write_text(text)
        self.assertEqual(self.read_page()["title"], "Comparison on <input>")
        self.render()


def made_up_run(solver, repetition, progress):
    """A run with these times and costs, whose last cost is final."""
    initial, final = progress[0][1], progress[-1][1]
    return {
        "solver": solver, "repetition": repetition, "ending": "solved",
        "message": "", "report": {
            "iterations": [{"cumulative_time_in_seconds": seconds, "cost": cost,
                            "step_is_successful": True,
                            "linear_solver_iterations": 7}
                           for seconds, cost in progress],
            "summary": {"initial_cost": initial, "final_cost": final,
                        "total_time_in_seconds": progress[-1][0],
                        "linear_solver_type_used": "CGNR"},
            "recomputed_costs": {
                "initial_cost": initial, "initial_cost_tolerance": 0.0,
                "final_cost": final, "final_cost_tolerance": 0.0}}}


class EvaluateTest(unittest.TestCase):

    def test_evaluate(self):
        # To the best cost, 100, in three runs; times to 1 %: 2, 4 and 3; the
        # bounds themselves count, and no time between two iterations does.
        runs = [
            made_up_run("a", 0, [(1, 500), (2, 101), (3, 100.1), (4, 100)]),
            made_up_run("a", 1, [(1, 500), (3, 101.001), (4, 100.5), (9, 100)]),
            made_up_run("a", 2, [(1, 500), (3, 100.9), (5, 100.001),
                                 (6, 100)]),
            made_up_run("b", 0, [(1, 500), (2, 100.5)]),
            made_up_run("b", 1, [(1, 500), (2, 102)]),
            made_up_run("c", 0, [(1, 500), (2, 50)]),
            made_up_run("d", 0, [(1, 500), (2, 50)])]
        # A step that was rejected does not count, and neither does a cost that
        # is wrong, nor one of a run that was not solved.
        runs[0]["report"]["iterations"].insert(1, {
            "cumulative_time_in_seconds": 1.5, "cost": 1.0,
            "step_is_successful": False, "linear_solver_iterations": 3})
        runs[5]["report"]["recomputed_costs"]["final_cost"] = 51.0
        runs[6].update(ending="crashed", message="gone")

        best, results = cs.evaluate(runs, ["d", "c", "b", "a", "nobody"])
        self.assertEqual(best, 100)
        self.assertEqual([result["solver"] for result in results],
                         ["d", "c", "b", "a"])
        d, c, b, a = results
        self.assertEqual(a["num_solved"], 3)
        self.assertEqual(a["seconds_to"], [(2, 3, 4), (3, 5, 9), (4, 5, 9)])
        self.assertEqual(a["total"], (4, 6, 9))
        self.assertEqual(a["final_cost"], 100)
        self.assertEqual(a["iterations"], 4)
        self.assertEqual(a["linear_iterations"], 31)
        self.assertEqual(a["faults"], [])
        # One run did not get there.
        self.assertTrue(math.isnan(b["seconds_to"][0][1]))
        self.assertEqual(b["total"], (2, 2, 2))
        self.assertEqual(c["faults"], [
            "c, run 1: expected final_cost 51 (recomputed) within 0, found 50"])
        self.assertEqual(d["faults"], ["d, run 1: gone"])
        self.assertEqual(d["num_solved"], 0)
        table = cs.comparison_table(best, results)
        self.assertIn("The best cost is 100.\n", table)
        self.assertIn("d, run 1: gone\n", table)
        self.assertTrue(math.isnan(cs.evaluate([], ["a"])[0]))

    def test_cost_fault(self):
        run_ = made_up_run("a", 0, [(1, 500), (2, 100)])
        self.assertEqual(cs.cost_fault(run_), "")
        costs = run_["report"]["recomputed_costs"]
        costs["final_cost"] = 100.5
        self.assertNotEqual(cs.cost_fault(run_), "")
        costs["final_cost_tolerance"] = 0.5
        self.assertEqual(cs.cost_fault(run_), "")
        run_["report"]["summary"]["initial_cost"] = None
        self.assertNotEqual(cs.cost_fault(run_), "")
        del run_["report"]["recomputed_costs"]
        self.assertNotEqual(cs.cost_fault(run_), "")


if __name__ == "__main__":
    unittest.main()
