"""How the suite runs: which tests, in what order, in which processes, and where files lie."""
