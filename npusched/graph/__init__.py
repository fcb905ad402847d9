"""From a model to scheduled ops: ``graph.build.build_graph`` returns an ``OpGraph``.

Submodules are imported by name, because light packages need the plain values of ``graph.types``.
"""
