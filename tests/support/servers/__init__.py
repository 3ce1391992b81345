"""Policy servers of three protocols, which answer as the real ones do and misbehave on demand."""
