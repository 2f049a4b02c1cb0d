# Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
"""The common part of plot_study, plot_exact and plot_solvers: matplotlib plots as
small SVG files, with the same bytes for the same record."""
import io
import re


def use_svg():
    """matplotlib.pyplot, for files whose text stays text."""
    import matplotlib
    matplotlib.use('svg')
    matplotlib.rcParams['svg.hashsalt'] = 'ceres_ext'
    matplotlib.rcParams['svg.fonttype'] = 'none'
    matplotlib.rcParams['font.sans-serif'] = ['DejaVu Sans', 'sans-serif']
    import matplotlib.pyplot as plt
    return plt


def save(figure, path, **options):
    """Hundredths of a point, and a line for each axis, curve and legend, so that
    a repeated plot is a short diff."""
    text = io.StringIO()
    figure.savefig(text, format='svg', metadata={'Date': None}, **options)
    text = re.sub(r'\s*\n\s*', ' ', text.getvalue().strip())
    text = re.sub(r'\d+\.\d{3,}',
                  lambda match: '%g' % round(float(match.group()), 2), text)
    text = re.sub(r'(?<=[ "])-0(?=[ "])', '0', text)
    text = re.sub(r' (?=<g id="(axes|matplotlib\.axis|legend|line2d|patch)_)', '\n',
                text)
    # Ticks stay with their axis.
    text = re.sub(r'\n(?=<g id="line2d_\d+"> (<defs>.{1,200}?</defs> )?<g> <use)',
                ' ', text)
    path.write_text(text + '\n')
