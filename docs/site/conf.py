"""Sphinx's settings for the documentation's site (docs/site/pages.py)."""

project = "moorage"
author = "The moorage authors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "moorage"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 4
# A page may show a shape that is no whole JSON, or a transcript.
suppress_warnings = ["misc.highlighting_failure"]
