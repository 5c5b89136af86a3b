"""Why a result is still dynamic: facts for the report, read off the graph, types and values that a run ends with.

First the operators whose output size depends on data are found. Then each size that they make, and each input dim without
a name, gets a symbol of its own, and the types are worked out anew: the symbols in a shape then say what it depends on.
"""

from surgeon_passes.dynamics.finder import find_dynamic

__all__ = ["find_dynamic"]
