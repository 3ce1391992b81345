"""The command line's frame, and the four commands of any subject: breakdown, compare, verify, report."""
