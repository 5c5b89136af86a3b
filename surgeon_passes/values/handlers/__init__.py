"""How values are computed: one module per operator family, registered on import."""

from surgeon_passes.values.handlers import arithmetic, cast, control, create, layout, logic, pick, reduce, scatter, sort

__all__ = ["arithmetic", "cast", "control", "create", "layout", "logic", "pick", "reduce", "scatter", "sort"]
