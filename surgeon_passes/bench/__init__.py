"""Every optimiser that is installed, side by side: seconds, memory, nodes, bytes, equal outputs, latency.

``measure`` runs each tool in a process of its own (``worker``), lets another one say what the results are worth (``judge``),
and gives ``records``; ``table``, ``summary`` and ``plot`` show them.
"""
