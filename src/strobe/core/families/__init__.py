"""The record of one kind of policy or backbone, and where all of them are found."""
