"""A partition's behaviour: which files belong together, and what can be asked of them."""
