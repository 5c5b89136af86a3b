"""What an operator is: schemas, defaults by opset, traits, old forms, the node view. Knows no graph."""

from surgeon_passes.ops.schema import domain_of, plain, schema
from surgeon_passes.ops.view import CallerAttribute, NodeView, normalise_axis

__all__ = ["CallerAttribute", "NodeView", "domain_of", "normalise_axis", "plain", "schema"]
