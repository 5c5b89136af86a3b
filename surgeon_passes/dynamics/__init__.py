"""Why a result is still dynamic: facts for the report, read off the graph, types and values that a run ends with.

Every size of the main graph that nothing tells has a name of its own: the names in a shape say where its sizes were made.
"""

from surgeon_passes.dynamics.finder import find_dynamic
from surgeon_passes.dynamics.knowledge import Knowledge, knowledge

__all__ = ["Knowledge", "find_dynamic", "knowledge"]
