"""Changes that make a policy faster: flow, layers, numbers, engines, graphs."""
