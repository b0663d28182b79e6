"""Isthmus: graph neural networks trained across machines, over narrow links."""

__version__ = "0.1.0"
