#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""render_page.py PAGE [SCREENSHOT.png]

Shows a page of bundle_adjuster in a browser without a window, 1000 pixels wide,
and fails with one line for each fault: an error on the console, text of a plot
on other text or outside its plot, figures on each other, a page wider than the
window. Exit status 77 where no Chromium is found.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

# A tenth of the smaller box: boxes of text have margins.
SCRIPT = """
<script>
//<![CDATA[
const faults = [];
const area = (a, b) =>
  Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) *
  Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
const size = box => box.width * box.height;
function check(elements, name) {
  const boxes = elements.map(e => e.getBoundingClientRect());
  for (let i = 0; i < boxes.length; ++i)
    for (let k = 0; k < i; ++k)
      if (area(boxes[i], boxes[k]) >
          0.1 * Math.min(size(boxes[i]), size(boxes[k])))
        faults.push(name + ' overlap: ' + elements[k].textContent.slice(0, 40) +
                    ' | ' + elements[i].textContent.slice(0, 40));
}
let numTexts = 0;
for (const svg of document.querySelectorAll('svg')) {
  const texts = [...svg.querySelectorAll('text')];
  numTexts += texts.length;
  check(texts, 'texts');
  const frame = svg.getBoundingClientRect();
  for (const text of texts) {
    const box = text.getBoundingClientRect();
    if (area(box, frame) < 0.98 * size(box))
      faults.push('text outside its plot: ' + text.textContent);
  }
}
check([...document.querySelectorAll('figure, table, h2, p')], 'blocks');
if (document.documentElement.scrollWidth > window.innerWidth)
  faults.push('wider than the window: ' + document.documentElement.scrollWidth);
if (numTexts === 0) faults.push('no texts');
const result = document.createElement('pre');
result.id = 'faults';
result.textContent = JSON.stringify(faults);
document.body.appendChild(result);
//]]>
</script>
"""


def browse(page, *arguments):
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--enable-logging=stderr",
             "--window-size=1000,4200", f"--user-data-dir={profile}",
             *arguments, "file://" + os.path.abspath(page)],
            capture_output=True, text=True, timeout=110, check=True)


browser = os.environ.get("CERES_EXT_BROWSER") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser",
                                    "google-chrome", "chrome"))), None)
if browser is None:
    print("skipped: no Chromium (set CERES_EXT_BROWSER to one)")
    sys.exit(77)
with open(sys.argv[1], encoding="utf-8") as file:
    html = file.read()
with tempfile.TemporaryDirectory() as folder:
    checked = os.path.join(folder, "page.html")
    with open(checked, "w", encoding="utf-8") as file:
        file.write(html.replace("</body>", SCRIPT + "</body>"))
    shown = browse(checked, "--dump-dom")
found = re.search(r'<pre id="faults">(.*?)</pre>', shown.stdout, re.DOTALL)
faults = json.loads(found.group(1)) if found else ["the page ran no script"]
faults += [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
if len(sys.argv) > 2:
    browse(sys.argv[1], "--screenshot=" + os.path.abspath(sys.argv[2]))
print("\n".join(faults))
sys.exit(1 if faults else 0)
