"""The same policy in another Python environment: what is carried there, and the process that runs it."""
