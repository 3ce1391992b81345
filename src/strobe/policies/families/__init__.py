"""One file per family of policies or backbones; `registry` finds the one of a type."""
