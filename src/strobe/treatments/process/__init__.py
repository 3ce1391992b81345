"""Treatments of the process that the policy runs in: its memory, its threads."""
