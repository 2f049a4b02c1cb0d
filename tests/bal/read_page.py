#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""read_page.py PAGE

Reads a page of bundle_adjuster as XML, which fails where it is not well formed,
and writes what it holds as JSON: title, headings of figures, numbers by their
id, rows of tables, and whatever would be loaded from elsewhere.
"""
import json
import sys
import xml.etree.ElementTree as ElementTree

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


def text(element):
    return "".join(element.itertext())


root = ElementTree.parse(sys.argv[1]).getroot()
numbers = {}
external = []
for element in root.iter():
    if element.tag not in [HTML + "data"]:
        assert "id" not in element.attrib, element.attrib
    elif "id" in element.attrib:
        assert element.get("id") not in numbers, element.get("id")
        value = element.get("value")
        numbers[element.get("id")] = float(value) if value else None
    if element.tag in [HTML + tag for tag in
                       ("script", "link", "img", "iframe", "object")]:
        external.append(element.tag)
    external += [value for name, value in element.attrib.items()
                 if name in ("src", "href") or "url(" in value]
    if element.tag == HTML + "style" and (
            "url(" in element.text or "@import" in element.text):
        external.append("style")
paths = [path.get("d") for path in root.iter(SVG + "path")]
for path in paths:
    assert path.startswith("M") and "n" not in path, path  # no nan, no inf
json.dump({
    "title": text(root.find(f"{HTML}head/{HTML}title")),
    "figures": [text(figure.find(HTML + "h3"))
                for figure in root.iter(HTML + "figure")],
    "numbers": numbers,
    "rows": [[text(cell) for cell in row] for row in root.iter(HTML + "tr")],
    "texts": [text(t) for t in root.iter(SVG + "text")],
    "num_paths": len(paths),
    "external": external,
}, sys.stdout)
