#!/usr/bin/env python3
# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Writes the pages of the web site (scripts/site).

  site_pages.py ROOT XML PAGES [--without-python]

ROOT: the checkout; XML: Doxygen's output for the public headers; PAGES: the
folder of the pages. The Python reference needs the package ceres_ext.
"""

import argparse
import ast
import inspect
import pathlib
import re
import shutil
import xml.etree.ElementTree as ElementTree

# Files outside of docs/ that become pages.
PAGES_OF = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "LICENSE": "license.md",
    "SECURITY.md": "security.md",
    "patches/README.md": "patches.md",
    "examples/README.md": "examples/index.md",
    "docs/measurements/README.md": "measurements/index.md",
}
# The order of the reference.
HEADERS = [
    "solve.h", "cuda_libraries.h", "options.h", "summary.h", "array_problem.h",
    "bal_cost_functions.h", "device_cost_function.h",
    "cost_function.cuh", "photogrammetry.h", "direction_errors.h",
    "direction_cost_functions.h", "preintegration.h", "odometry_errors.h",
    "inverse_depth_errors.h", "odometry_priors.h",
    "odometry_cost_functions.h", "marginal_prior.h", "marginalize.h", "camera_models.h", "batch.h",
    "covariance.h",
    "batchable_cost_function.h", "row_evaluation.h",
]


def escape(text):
    """Plain text as Markdown; what is in backquotes is code."""
    parts = re.split(r"(`[^`\n]+`)", text)
    for i in range(0, len(parts), 2):
        part = re.sub(r"([\\`*_{}\[\]#])", r"\\\1", parts[i])
        parts[i] = part.replace("<", "&lt;").replace(">", "&gt;").replace(
            "|", "&#124;")
    return "".join(parts)


# ---------------------------------------------------------------- documents


def page_of(root, path, sources):
    """The page of a file of the checkout, or None; sources collects files that
    need a page of their own."""
    name = path.relative_to(root).as_posix()
    if name in PAGES_OF:
        return PAGES_OF[name]
    if name.startswith("docs/"):
        return name[len("docs/"):]
    if path.is_dir() or path.suffix in (".h", ".cc", ".cu", ".py"):
        sources.add(path)
        return f"{name}/index.md" if path.is_dir() else f"{name}.md"
    return name if path.exists() else None


def relative(target, page):
    """A link from a page to a target, both relative to the pages."""
    up = len(pathlib.PurePosixPath(page).parts) - 1
    return "../" * up + target


def copy_page(root, source, page, pages, sources, files):
    """Copies Markdown with its links changed to those of the site."""

    def change(match):
        text, link = match.groups()
        target, _, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match.group()
        path = (source.parent / target).resolve()
        if not path.exists():
            return match.group()  # MkDocs reports it.
        to = page_of(root, path, sources)
        if not to.endswith(".md"):
            files.add((path, to))
        return f"{text}({relative(to, page)}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```$)", source.read_text(),
                     flags=re.DOTALL | re.MULTILINE)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", change, parts[i])
    out = pages / page
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(parts))


def write_sources(root, sources, pages):
    for path in sorted(sources):
        name = path.relative_to(root).as_posix()
        out = pages / (f"{name}/index.md" if path.is_dir() else f"{name}.md")
        out.parent.mkdir(parents=True, exist_ok=True)
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        text = f"# {name}\n"
        for file in inside:
            if file.suffix not in (".h", ".cc", ".cu", ".py", ".txt"):
                continue
            language = {".py": "python", ".txt": "cmake"}.get(
                file.suffix, "c++")
            if path.is_dir():
                text += f"\n## {file.name}\n"
                if len(inside) > 12:
                    continue  # A program: its files are listed.
            text += f"\n```{language}\n{file.read_text()}```\n"
        out.write_text(text)


# --------------------------------------------------------------------- C++


def inline(node):
    """The text of a node of Doxygen as Markdown."""
    text = escape(node.text or "")
    for child in node:
        if child.tag == "computeroutput":
            text += "`" + "".join(child.itertext()) + "`"
        elif child.tag == "verbatim":
            text += f"\n\n```c++\n{dedent(child.text)}\n```\n\n"
        elif child.tag in ("itemizedlist", "orderedlist"):
            mark = "-" if child.tag == "itemizedlist" else "1."
            items = ["".join(blocks(item)).strip() for item in child]
            text += "\n\n" + "".join(
                f"{mark} " + item.replace("\n", "\n    ") + "\n"
                for item in items) + "\n"
        else:
            text += inline(child)
        text += escape(child.tail or "")
    return text


def dedent(text):
    lines = [re.sub(r"^\s*///", "", line)
             for line in text.strip("\n").splitlines()]
    while lines and not lines[-1].strip():
        lines.pop()
    width = min((len(line) - len(line.lstrip())
                 for line in lines if line.strip()), default=0)
    return "\n".join(line[width:].rstrip() for line in lines)


def blocks(node):
    return [inline(para).strip() + "\n\n" for para in node.iter("para")
            if node.tag in ("listitem", "briefdescription",
                            "detaileddescription")
            and para in list(node)]


def description(member):
    text = ""
    for tag in ("briefdescription", "detaileddescription",
                "inbodydescription"):
        found = member.find(tag)
        if found is not None:
            text += "".join(blocks(found))
    return re.sub(r"\n{3,}", "\n\n", text)


def plain(node):
    return re.sub(r"\s+", " ", "".join(node.itertext())) if node is not None \
        else ""


def template_of(member):
    parameters = member.find("templateparamlist")
    if parameters is None:
        return ""
    return "template <" + ", ".join(
        " ".join(filter(None, [plain(p.find("type")), plain(p.find("declname"))]))
        for p in parameters) + ">\n"


def declaration(member):
    kind, name = member.get("kind"), plain(member.find("name"))
    type_name = plain(member.find("type")).replace("< ", "<").replace(" >", ">")
    if kind == "function":
        arguments = []
        for parameter in member.findall("param"):
            words = " ".join(filter(None, [
                plain(parameter.find("type")), plain(parameter.find("declname"))]))
            default = plain(parameter.find("defval"))
            arguments.append(words + (f" = {default}" if default else ""))
        arguments = [a.replace("< ", "<").replace(" >", ">") for a in arguments]
        line = f"{type_name} {name}(".strip()
        one = line + ", ".join(arguments) + ")"
        if len(one) > 76:
            one = line + "\n    " + ",\n    ".join(arguments) + ")"
        if member.get("const") == "yes":
            one += " const"
        return template_of(member) + one + ";"
    if kind == "define":
        parameters = [plain(p.find("defname")) for p in member.findall("param")]
        return f"{name}({', '.join(parameters)})" if parameters else name
    value = plain(member.find("initializer"))
    text = f"using {name} = {type_name}" if kind == "typedef" else \
        f"{type_name} {name} {value}".strip()
    return template_of(member) + text + ";"


def member_text(member, level):
    """A function or macro with a code block, a value as a definition."""
    kind, about = member.get("kind"), description(member)
    if kind == "enum":
        text = f"\n{'#' * level} enum {plain(member.find('name'))}\n\n{about}"
        for value in member.findall("enumvalue"):
            text += definition(plain(value.find("name")), description(value))
        return text
    if kind in ("function", "define"):
        return f"\n```c++\n{declaration(member)}\n```\n\n{about}"
    type_name = plain(member.find("type"))
    if not about and re.fullmatch(r"[A-Z]\w*(Type|Choice|Gauge|Scale)", type_name):
        about = f"See [{type_name}](#enum-{type_name.lower()})."
    return definition(declaration(member), about)


def definition(code, about):
    about = about.strip() or "\u00a0"
    return f"\n`{code}`\n\n:   " + about.replace("\n", "\n    ") + "\n"


def compound_text(xml, refid, level):
    """A class with its public members and the classes in it."""
    compound = ElementTree.parse(xml / f"{refid}.xml").getroot()[0]
    name = plain(compound.find("compoundname")).replace("ceres_ext::", "")
    text = (f"\n{'#' * level} {compound.get('kind')} {escape(name)}\n\n"
            + description(compound))
    for inner in compound.findall("innerclass"):
        if inner.get("prot") == "public":
            text += compound_text(xml, inner.get("refid"), level + 1)
    for section in compound.findall("sectiondef"):
        if section.get("kind", "").startswith("public"):
            for member in section.findall("memberdef"):
                if not plain(member.find("name")).startswith("~"):
                    text += member_text(member, level + 1)
    return text


def write_headers(xml, pages):
    files = {}
    for path in xml.glob("*_8*h.xml"):
        compound = ElementTree.parse(path).getroot()[0]
        files[plain(compound.find("compoundname"))] = compound
    # Headers that HEADERS does not know come last.
    headers = [name for name in HEADERS if name in files]
    headers += sorted(set(files) - set(headers))
    members = {name: [] for name in headers}
    for path in [*xml.glob("namespaceceres__ext.xml"), *xml.glob("*_8*h.xml")]:
        for member in ElementTree.parse(path).getroot().iter("memberdef"):
            name = pathlib.Path(member.find("location").get("file")).name
            if name in members and not plain(
                    member.find("name")).endswith("H_"):
                members[name].append(member)
    listed = "# C++\n\nThe public headers. Include them as `ceres_ext/NAME`.\n\n"
    listed += "| header | |\n|---|---|\n"
    for name in headers:
        compound = files[name]
        about = description(compound)
        first = re.split(r"(?<=[.:]) |\n", about.strip())[0].rstrip(":") or name
        listed += f"| [{name}]({name}.md) | {first} |\n"
        text = f"# {name}\n\n`#include \"ceres_ext/{name}\"`\n\n{about}"
        of_kind = {"enum": "", "other": ""}
        for member in members[name]:
            kind = "enum" if member.get("kind") == "enum" else "other"
            of_kind[kind] += member_text(member, 2)
        text += of_kind["enum"]
        for inner in compound.findall("innerclass"):
            # Classes in classes are written with these.
            if "internal" not in inner.text and inner.text.count("::") == 1:
                text += compound_text(xml, inner.get("refid"), 2)
        if of_kind["other"]:
            text += "\n## Functions and macros\n" + of_kind["other"]
        (pages / f"{name}.md").write_text(re.sub(r"\n{3,}", "\n\n", text))
    (pages / "index.md").write_text(listed)


# ------------------------------------------------------------------ Python


def doc_text(doc):
    """A docstring as Markdown: "name: text" lines become a list, and lines with
    four blanks or more code."""
    out = ""
    for paragraph in re.split(r"\n{2,}", inspect.cleandoc(doc or "")):
        if paragraph.startswith("    "):
            out += f"```python\n{inspect.cleandoc(paragraph)}\n```\n\n"
            continue
        lines = []
        for line in paragraph.splitlines():
            item = re.match(r"([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (.+)$", line)
            if item:
                lines.append(f"- `{item.group(1)}`: {escape(item.group(2))}")
            elif lines and lines[-1].startswith(("- ", "  ")):
                lines.append("  " + escape(line))
            else:
                lines.append(escape(line))
        out += "\n".join(lines) + "\n\n"
    return out


def wrapped(signature):
    """A signature of more than 76 characters with a line per parameter."""
    signature = re.sub(r"\b(ceres_ext\._ceres_ext|ceres_ext)\.", "", signature)
    found = re.match(r"(def \w+\()(.*)(\)(?: -> .*)?)$", signature)
    if len(signature) <= 76 or not found:
        return signature
    parameters, depth = [""], 0
    for character in found.group(2):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parameters.append("")
        else:
            parameters[-1] += character
    return (found.group(1) + "".join(f"\n    {p.strip()}," for p in parameters)
            + "\n" + found.group(3))


def signatures(thing, name):
    found = getattr(thing, "__nb_signature__", None)
    if found:
        return [(s[0], s[1] or "") for s in found]
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = "(...)"
    return [(f"def {name}{signature}", inspect.getdoc(thing) or "")]


def function_text(thing, name):
    return "".join(
        f"\n```python\n{wrapped(signature)}\n```\n\n{doc_text(doc)}\n"
        for signature, doc in signatures(thing, name))


def field_docs(module):
    """The strings after the fields of classes in the source files of a module."""
    docs = {}
    path = pathlib.Path(module.__file__)
    files = sorted(path.parent.glob("*.py")) if path.stem == "__init__" else [path]
    nodes = [node for file in files for node in ast.parse(file.read_text()).body]
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for field, after in zip(node.body, node.body[1:] + [None]):
                if isinstance(field, ast.AnnAssign):
                    docs[node.name, field.target.id] = (
                        ast.unparse(field.annotation),
                        after.value.value if isinstance(after, ast.Expr) and
                        isinstance(after.value, ast.Constant) else "")
    return docs


def class_text(thing, name, docs):
    text = f"\n## class {name}\n\n{doc_text(inspect.getdoc(thing))}\n"
    for (owner, field), (annotation, doc) in docs.items():
        if owner == name:
            text += definition(f"{field}: {annotation}", doc_text(doc))
    for member, value in vars(thing).items():
        if member.startswith("_") and member != "__init__":
            continue
        if isinstance(value, property):
            doc = inspect.getdoc(value) or ""
            getter = getattr(value.fget, "__nb_signature__", None)
            kind = ""
            if getter:
                found = re.search(r"-> (.*)$", getter[0][0])
                kind = ": " + found.group(1) if found else ""
                doc = getter[0][1] or doc
            text += definition(member + kind, doc_text(doc))
        elif getattr(value, "__nb_signature__", None) or (
                inspect.isfunction(value) and not hasattr(thing, "_fields")):
            text += function_text(value, member)
    return text


def module_text(module):
    """Functions, then classes and constants."""
    docs = field_docs(module)
    functions = classes = ""
    for name in sorted(module.__all__):
        thing = getattr(module, name)
        if name == "__version__" or inspect.ismodule(thing):
            continue
        if inspect.isclass(thing):
            classes += class_text(thing, name, docs)
        elif callable(thing):
            functions += f"\n## {name}\n{function_text(thing, name)}"
        else:
            classes += f"\n## {name}\n\n```python\n{thing!r}\n```\n"
    return functions + classes


def write_python(out):
    import ceres_ext
    text = f"# Python\n\n{doc_text(ceres_ext.__doc__)}\n" + module_text(ceres_ext)
    for name in ceres_ext.__all__:
        module = getattr(ceres_ext, name)
        if inspect.ismodule(module):
            text += f"\n## Module {module.__name__}\n\n{doc_text(module.__doc__)}\n"
            text += module_text(module)
    out.write_text(re.sub(r"\n{3,}", "\n\n", text))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("xml", type=pathlib.Path)
    parser.add_argument("pages", type=pathlib.Path)
    parser.add_argument("--without-python", action="store_true")
    arguments = parser.parse_args()
    root, pages = arguments.root.resolve(), arguments.pages
    shutil.rmtree(pages, ignore_errors=True)
    (pages / "api").mkdir(parents=True)
    sources, files = set(), set()
    for name, page in PAGES_OF.items():
        source = root / name
        if name == "LICENSE":
            (pages / page).write_text(
                f"# License\n\n```\n{source.read_text()}```\n")
        elif source.exists():
            copy_page(root, source, page, pages, sources, files)
    for source in sorted((root / "docs").rglob("*.md")):
        name = source.relative_to(root).as_posix()
        if name not in PAGES_OF and not name.startswith("docs/site/"):
            copy_page(root, source, name[len("docs/"):], pages, sources, files)
    write_sources(root, sources, pages)
    for path, to in files:
        (pages / to).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, pages / to)
    shutil.copyfile(root / "docs/site/extra.css", pages / "extra.css")
    write_headers(arguments.xml, pages / "api")
    if arguments.without_python:
        (pages / "api/python.md").write_text(
            "# Python\n\nThis site was built without the Python package; "
            "`help(ceres_ext)` has the reference.\n")
    else:
        write_python(pages / "api/python.md")


if __name__ == "__main__":
    main()
