"""Algorithms of Mycelia: losses, networks and updates in torch, without any networking.

Importing this package, `registry` or an algorithm's `config` never imports torch, so that
services which only read configs start quickly.
"""
