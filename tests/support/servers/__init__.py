"""Policy servers of three protocols, which answer as the real ones do and misbehave on demand."""


class Break(Exception):  # noqa: N818  # it is no error: the server ends, or its connection, as a killed one does
    """The server ends in the middle of a call."""
