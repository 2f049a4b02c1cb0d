# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""Replaces the only script that the theme would load from the network."""

import pathlib

SHIM = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
WORKER = pathlib.Path(__file__).with_name("worker.js").read_text()


def replace(output, name):
    if SHIM not in output:
        raise ValueError(f"{name}: expected {SHIM} of the offline plugin")
    return output.replace(SHIM, f"<script>{WORKER}</script>")


def on_post_page(output, page, config):
    return replace(output, page.url)


def on_post_template(output_content, template_name, config):
    is_page = template_name.endswith(".html")
    return replace(output_content, template_name) if is_page else output_content
