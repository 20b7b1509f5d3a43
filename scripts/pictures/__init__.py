"""The drawings of the documentation, as SVG that is readable on light and on dark pages.

`python -m scripts.pictures` draws them into docs/pictures; a test compares those with what this
package draws. Each module is one picture. The charts there are not from here: the benchmark and
the soak draw what they measured.
"""
