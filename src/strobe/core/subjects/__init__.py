"""The subject that a study runs, and the subject that is made of any callable."""
